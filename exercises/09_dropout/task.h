#pragma once

#include <ATen/core/Tensor.h>

namespace exercises {

/// Dropout of attention weights: in training, each weight independently becomes 0 with probability p, and the
/// surviving weights are scaled so that the mean of every weight is unchanged. Outside training, nothing
/// happens.
at::Tensor drop_weights(const at::Tensor& weights, double p, bool training);

}  // namespace exercises
