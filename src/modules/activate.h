#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/linear.h>

#include <attentive/modules/feed_forward.h>

namespace attentive {

/// Applies the activation to each number.
at::Tensor activate(Activation activation, const at::Tensor& x);

/// activate(project(layer, x)), in one pass where this package multiplies x (functional/linear.h).
at::Tensor project_activated(Activation activation, const torch::nn::Linear& layer, const at::Tensor& x);

/// activate(project(gate, x)) * project(up, x), likewise.
at::Tensor project_gated(Activation activation, const torch::nn::Linear& gate, const torch::nn::Linear& up,
                         const at::Tensor& x);

}  // namespace attentive
