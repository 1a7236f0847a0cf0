#pragma once

#include <ATen/core/Tensor.h>

namespace attentive {

// x W^T + b. By the fused at::linear, equal to Python's bit for bit, which C++ `nn::Linear::forward` is not
// on 3-D input. A few rows without gradients are multiplied here (kernels/cpu/few_linear.h), equal to within
// rounding.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {});

}  // namespace attentive
