#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include <attentive/functional/recorded_attention.h>
#include <attentive/viz/attention_view.h>

#include "viz/head_rows.h"

namespace attentive::viz {

/// One batch item of a call as a call of its own; its tensors refer to those of `call`. Throws
/// c10::ValueError, prefixed by `who`, if there is no such item.
RecordedAttention batch_item(const char* who, const RecordedAttention& call, int64_t batch);

/// Throws c10::ValueError, prefixed by `who`, unless the parts of a view fit together and its weights are
/// finite and not negative.
void check_view(const char* who, const AttentionView& view);

/// One head of a view that was checked, by its place in `view.heads`; holds the memory to which `rows`
/// points.
struct HeadMemory {
  HeadMemory(const AttentionView& view, int64_t place);

  at::Tensor weights, visible;
  HeadRows rows;
};

}  // namespace attentive::viz
