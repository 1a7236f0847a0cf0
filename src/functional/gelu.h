#pragma once

#include <ATen/core/Tensor.h>

namespace attentive {

// GELU in its tanh form: x / (1 + exp(-2 u)) with u = sqrt(2 / pi) (x + 0.044715 x^3). On float32 CPU tensors
// it is vector code of the native kernel: ATen's vector tanh takes a tenth of a small GPT's training step.
// Elsewhere it is at::gelu(x, "tanh").
at::Tensor gelu_tanh(const at::Tensor& x);

}  // namespace attentive
