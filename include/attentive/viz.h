#pragma once

/// Includes every public header of `attentive::viz`. A program that is rebuilt often compiles faster if it
/// includes only what it uses.

#include <attentive/viz/attention_view.h>
#include <attentive/viz/head_statistics.h>
#include <attentive/viz/write_page.h>
