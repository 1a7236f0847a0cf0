#pragma once

#include <ATen/core/Tensor.h>

namespace attentive::kernels::cpu {

/// x W^T + b for at most 16 rows of x, in one pass over the weight with prefetching, so that the time is that
/// of reading the weight. If the weight is in a core's caches, it takes less time than the overhead of a
/// library call. The dtype is float32, float16, or bfloat16 where the CPU lacks a fast product for it; half
/// types are summed in float32 and rounded once. The result does not depend on the number of threads. Returns
/// an undefined tensor if at::linear has to compute the call: for other dtypes and devices, for more rows,
/// and if gradients, autocast or a tensor subclass must see the call.
at::Tensor few_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

}  // namespace attentive::kernels::cpu
