#pragma once

// Projections of few rows, x W^T + b, in one pass over the weight with prefetching, so that the time is that
// of reading the weight: at most 32 rows, or 16 where LibTorch has a product of their half type that is as
// fast. If the weight is in a core's caches, they take less time than the overhead of a library call. A call
// wakes the threads once, also if it computes several projections.
//
// The dtype is float32, float16 or bfloat16. Half types are summed in float32, and what is done with a sum
// (bias, function, product) is done in float32 before it is rounded once. The results do not depend on the
// number of threads: a number is computed by one thread in a fixed order.
//
// All functions return an undefined tensor, or none, if at::linear has to compute the call: for other dtypes
// and devices, for more rows, and if gradients, autocast or a tensor subclass must see the call.

#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include "kernels/gemm/layers.h"

namespace attentive::kernels::cpu {

/// function(x W^T + b); without a function, the sums themselves.
at::Tensor few_linear(const at::Tensor& x, const LinearLayer& layer, RowFunction function = nullptr);

/// x W^T + b for every layer. All have the same number of features.
std::vector<at::Tensor> few_linears(const at::Tensor& x, at::ArrayRef<LinearLayer> layers);

/// function(x G^T + a) * (x U^T + b), for two layers of equal sizes.
at::Tensor few_gated_linear(const at::Tensor& x, const LinearLayer& gate, const LinearLayer& up,
                            RowFunction function);

}  // namespace attentive::kernels::cpu
