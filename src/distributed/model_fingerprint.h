#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

namespace attentive::distributed {

/// The parts of a model that matter for data parallel training.
struct ModelParts {
  std::vector<at::Tensor> state;      ///< every parameter and buffer, shared ones once
  std::vector<at::Tensor> trainable;  ///< parameters that require a gradient, shared ones once
  std::vector<std::string> names;     ///< the names of `trainable`
  std::string text;  ///< one line for each name and option; must be the same in all processes
};

/// device: the group's device. The text records which tensors are on the CPU, on that device, or elsewhere.
ModelParts model_parts(const torch::nn::Module& model, const at::Device& device);

}  // namespace attentive::distributed
