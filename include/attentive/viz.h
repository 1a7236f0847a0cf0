#pragma once

/// Includes every public header of `attentive::viz`. A program that is rebuilt often compiles faster if it
/// includes only what it uses.

#include <attentive/viz/attention_rollout.h>
#include <attentive/viz/attention_view.h>
#include <attentive/viz/head_statistics.h>
#include <attentive/viz/page_title.h>
#include <attentive/viz/write_html.h>
#include <attentive/viz/write_svg.h>
