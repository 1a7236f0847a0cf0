#pragma once

#include <ATen/core/Tensor.h>

namespace attentive::kernels::cpu {

// x W^T + b for at most 16 rows of x, in one pass over the weight: it is fetched from memory early, and is all
// there is to wait for. A weight in a core's caches is multiplied sooner than a library call begins. float32;
// and bfloat16, with sums in float32 that are rounded once, where LibTorch has no product for it. The result
// does not depend on the number of threads. Answers an undefined tensor where at::linear has to do it: other
// dtypes and devices, more rows, and wherever something else listens to the call (gradients, autocast,
// subclasses).
at::Tensor few_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

}  // namespace attentive::kernels::cpu
