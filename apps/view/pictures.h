#pragma once

#include <string>
#include <vector>

#include <attentive/viz/attention_view.h>

#include "selection.h"
#include "source.h"

// Selects what is shown of a source.
struct Selection {
  std::vector<int64_t> heads = {};  // empty: all
  std::vector<LayerHead> neurons = {};
  int64_t batch = 0;
};

// Makes the views of the chosen calls and reports the progress on standard error if that is a terminal.
// Throws c10::ValueError for a selection that the source does not have, and for weights of more than 4 GiB.
std::vector<attentive::AttentionView> views_of(const Source& source, const Selection& selection);
