#pragma once

#include <ATen/core/Tensor.h>

namespace exercises {

/// The attention weights of a causal model: scores (T, T) -> weights (T, T). Query i sees the keys 0 .. i;
/// its weights are the softmax of their scores, and the weights of later keys are 0.
at::Tensor causal_weights(const at::Tensor& scores);

}  // namespace exercises
