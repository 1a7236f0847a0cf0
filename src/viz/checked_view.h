#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include <attentive/functional/attention_recorder.h>
#include <attentive/viz/attention_view.h>

#include "viz/head_rows.h"

namespace attentive::viz {

/// Extracts one batch item of a call as a separate call, whose tensors are views of the tensors of `call`.
/// Throws c10::ValueError, prefixed by `caller`, if there is no such item.
RecordedAttention batch_item(const char* caller, const RecordedAttention& call, int64_t batch);

/// Throws c10::ValueError, prefixed by `caller`, unless the parts of a view fit together and its weights are
/// finite and not negative.
void check_view(const char* caller, const AttentionView& view);

/// One head of a checked view, by its index in `view.heads`; owns the memory that `rows` points to.
struct HeadMemory {
  HeadMemory(const AttentionView& view, int64_t place);

  at::Tensor weights, visible;
  HeadRows rows;
};

}  // namespace attentive::viz
