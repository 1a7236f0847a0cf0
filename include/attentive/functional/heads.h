#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace attentive {

/// Splits features into heads: (B, T, H * d) -> (B, H, T, d). The result is a view, whatever the strides of
/// x. Throws c10::ValueError unless x has rank 3 and `num_heads` divides its last size.
///
///   auto q = attentive::split_heads(query, 12);  // (8, 1024, 768) -> (8, 12, 1024, 64)
at::Tensor split_heads(const at::Tensor& x, int64_t num_heads);

/// Undoes `split_heads`: (B, H, T, d) -> (B, T, H * d). The result is a view, without a copy, if x is
/// contiguous in memory as (B, T, H, d). Throws c10::ValueError unless x has rank 4.
at::Tensor merge_heads(const at::Tensor& x);

}  // namespace attentive
