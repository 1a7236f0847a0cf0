#pragma once

#include <ATen/core/Tensor.h>

namespace exercises {

/// Dropout of attention weights: in training each weight, on its own, becomes 0 with probability p, and what
/// survives is scaled so that the mean of every weight stays what it was. Outside training nothing happens.
at::Tensor drop_weights(const at::Tensor& weights, double p, bool training);

}  // namespace exercises
