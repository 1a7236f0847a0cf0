#pragma once

#include <ATen/core/Tensor.h>

namespace exercises {

/// (B, T, heads * d) -> (B, heads, T, d): head h of a token takes the features h * d .. h * d + d - 1.
at::Tensor into_heads(const at::Tensor& x, int64_t heads);

/// Undoes `into_heads`: (B, heads, T, d) -> (B, T, heads * d).
at::Tensor from_heads(const at::Tensor& x);

}  // namespace exercises
