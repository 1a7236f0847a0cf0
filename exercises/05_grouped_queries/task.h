#pragma once

#include <ATen/core/Tensor.h>

namespace exercises {

/// The weight of the key (or value) projection of grouped-query attention, computed from that of multi-head
/// attention: each group of neighbouring heads becomes one head, their mean.
///
///   weight (heads * d, d_in), head by head -> (kv_heads * d, d_in); kv_heads divides heads
at::Tensor grouped_weight(const at::Tensor& weight, int64_t heads, int64_t kv_heads);

}  // namespace exercises
