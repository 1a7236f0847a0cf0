#pragma once

#include <cstdint>

#include <attentive/functional/recorded_attention.h>

namespace attentive::viz {

/// One batch item of a call as a call of its own; its tensors refer to those of `call`. Throws
/// c10::ValueError, prefixed by `who`, if there is no such item.
RecordedAttention batch_item(const char* who, const RecordedAttention& call, int64_t batch);

}  // namespace attentive::viz
