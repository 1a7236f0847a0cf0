#pragma once

#include <ATen/core/Tensor.h>

namespace attentive::kernels::cpu {

// x W^T + b for a few rows of x and a weight that stays in a core's caches: there a library call costs more
// than the product. Answers an undefined tensor where at::linear has to do it: other dtypes and devices,
// larger sizes, and wherever something else listens to the call (gradients, autocast, subclasses).
at::Tensor few_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

}  // namespace attentive::kernels::cpu
