#pragma once

#include <ATen/core/Tensor.h>

namespace attentive {

// The next two functions multiply bfloat16 matrices in float32, a block of rows at a time, and round every
// result once. They record no derivative.

/// x right + b, rounded to bfloat16, for bfloat16 x (..., K) and b (N), which may be undefined, and float32
/// right (K, N).
at::Tensor widened_product(const at::Tensor& x, const at::Tensor& right, const at::Tensor& bias = {});

/// a^T b, the sum over rows, rounded to bfloat16, for a (rows, M) and b (rows, N).
at::Tensor widened_sum_of_rows(const at::Tensor& a, const at::Tensor& b);

/// x W^T + b by the fused at::linear, whose result equals Python's bit for bit, unlike that of C++
/// `nn::Linear::forward` on 3-D input. A few rows without gradients are multiplied by
/// kernels/gemm/few_linear.h, with results equal to within rounding. bfloat16 on a CPU for which LibTorch has
/// no fast product (widens_products) is computed in float32 and rounded once.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {});

/// The matrix product a b, with the same rule for bfloat16.
at::Tensor matrix_product(const at::Tensor& a, const at::Tensor& b);

/// a^T b, the sum over the rows of both, with the same rule.
at::Tensor sum_of_rows(const at::Tensor& a, const at::Tensor& b);

/// Whether products of x with a matrix are computed in float32 although x is bfloat16. On an x86 CPU without
/// AVX-512, LibTorch multiplies bfloat16 number by number, at a fiftieth of float32's rate.
bool widens_products(const at::Tensor& x);

}  // namespace attentive
