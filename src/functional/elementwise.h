#pragma once

// Elementwise functions, which use vector code for float32 CPU tensors: dropout and GELU.

#include <ATen/core/Tensor.h>

namespace attentive {

/// Dropout of features: each number survives with probability 1 - p and is then scaled by its inverse. On the
/// CPU, the Counter stream of kernels/dropout_counter.h decides on number n of the tensor as row 0, column n,
/// with one 64-bit draw from the default generator. All threads take part, and the backward pass draws the
/// mask again instead of storing it. at::dropout draws its numbers sequentially, which takes a tenth of a
/// GPT's training step. Under DropoutStream::Aten, and on other devices, it is at::dropout.
at::Tensor drop_features(const at::Tensor& x, double p, bool training);

/// residual + drop_features(x), in one pass over float32.
at::Tensor add_dropped(const at::Tensor& residual, const at::Tensor& x, double p, bool training);

/// GELU in its tanh form: x / (1 + exp(-2 u)) with u = sqrt(2 / pi) (x + 0.044715 x^3). On float32 CPU
/// tensors it uses vector code of the native kernel, because ATen's tanh takes a tenth of a small GPT's
/// training step. Otherwise it is at::gelu(x, "tanh").
at::Tensor gelu_tanh(const at::Tensor& x);

}  // namespace attentive
