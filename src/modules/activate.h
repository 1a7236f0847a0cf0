#pragma once

#include <ATen/core/Tensor.h>

#include <attentive/modules/feed_forward.h>

namespace attentive {

/// Applies the activation to each number.
at::Tensor activate(Activation activation, const at::Tensor& x);

}  // namespace attentive
