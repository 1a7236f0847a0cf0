#pragma once

// Functions of numbers and of rows, which use vector code for CPU tensors: dropout and GELU of float32;
// without gradients also RMSNorm and the rotation of pairs, for which ATen's operations need several passes.

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

// The next two functions are for numbers without gradients, of float32 or a half type on the CPU: they make
// one pass, in float32, and round a half type once. A few tokens are computed on the calling thread; the
// results do not depend on the number of threads. They return an undefined tensor if ATen's operations have
// to compute the call.

/// x / sqrt(mean(x^2) + eps) * (weight + offset), over the last dimension.
at::Tensor fused_rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps, double offset);

/// Rotates pairs of numbers in the two halves of the last dimension of x (B, H, T, d), whose last dimension
/// is contiguous: (a cos - b sin, b cos + a sin), with the tables (T, d / 2).
at::Tensor fused_rotated_halves(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin);

}  // namespace attentive
