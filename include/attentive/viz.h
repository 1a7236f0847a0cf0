#pragma once

/// Everything of `attentive::viz` in one include. Programs that build often include what they use.

#include <attentive/viz/attention_rollout.h>
#include <attentive/viz/attention_view.h>
#include <attentive/viz/head_statistics.h>
#include <attentive/viz/page_title.h>
#include <attentive/viz/write_html.h>
#include <attentive/viz/write_svg.h>
