#pragma once

#include <ATen/core/Tensor.h>

namespace attentive {

// Products of bfloat16 matrices by float32 products, a block of rows at a time, with every result rounded once.
// No derivative is recorded.

// x right + b, rounded: x (..., K) and b (N) bfloat16 or undefined, right (K, N) float32.
at::Tensor widened_product(const at::Tensor& x, const at::Tensor& right, const at::Tensor& bias = {});

// The sum over rows: a^T b, rounded, of a (rows, M) and b (rows, N).
at::Tensor widened_sum_of_rows(const at::Tensor& a, const at::Tensor& b);

}  // namespace attentive
