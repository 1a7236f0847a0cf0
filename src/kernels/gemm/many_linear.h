#pragma once

// Projections of many rows, x W^T + b, on processors where they are faster here than by LibTorch's libraries:
// a thread transposes the weights of 64 outputs into its cache and multiplies them with all rows, or with a
// block of them. No other memory is needed. What follows a sum (bias, function, product) is computed in
// float32 while the sums are in the cache, and a half type is rounded once.
//
// The results do not depend on the number of threads: a number is computed by one thread in an order that
// depends on the number of features alone.
//
// The functions return an undefined tensor if at::linear has to compute the call: on other processors, for
// other dtypes, for an odd number of bfloat16 features, and if gradients, autocast or a tensor subclass must
// see the call.

#include <ATen/core/Tensor.h>

#include "kernels/gemm/layers.h"

namespace attentive::kernels::cpu {

/// function(x W^T + b); without a function, the sums themselves.
at::Tensor many_linear(const at::Tensor& x, const LinearLayer& layer, RowFunction function = nullptr);

/// function(x G^T + a) * (x U^T + b), for two layers of equal sizes.
at::Tensor many_gated_linear(const at::Tensor& x, const LinearLayer& gate, const LinearLayer& up,
                             RowFunction function);

}  // namespace attentive::kernels::cpu
