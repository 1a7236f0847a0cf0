#pragma once

#include <ATen/core/Tensor.h>

namespace attentive {

// Products of bfloat16 matrices by float32 products, a block of rows at a time, with every result rounded once.
// No derivative is recorded.

// x right + b, rounded: x (..., K) and b (N) bfloat16 or undefined, right (K, N) float32.
at::Tensor widened_product(const at::Tensor& x, const at::Tensor& right, const at::Tensor& bias = {});

// The sum over rows: a^T b, rounded, of a (rows, M) and b (rows, N).
at::Tensor widened_sum_of_rows(const at::Tensor& a, const at::Tensor& b);

// x W^T + b. By the fused at::linear, equal to Python's bit for bit, which C++ `nn::Linear::forward` is not
// on 3-D input. A few rows without gradients are multiplied here (kernels/gemm/few_linear.h), equal to within
// rounding. bfloat16 on a CPU where LibTorch has no product for it (widens_products) is computed in float32
// and rounded once.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {});

// a b of two matrices, with the same rule for bfloat16.
at::Tensor matrix_product(const at::Tensor& a, const at::Tensor& b);

// a^T b, the sum over the rows of both, with the same rule.
at::Tensor sum_of_rows(const at::Tensor& a, const at::Tensor& b);

// Whether products of x with a matrix are computed in float32 although x is bfloat16: LibTorch multiplies it
// number by number on an x86 CPU without AVX-512, at a fiftieth of float32's rate.
bool widens_products(const at::Tensor& x);

}  // namespace attentive
