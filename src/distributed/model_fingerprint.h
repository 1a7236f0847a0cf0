#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

namespace attentive::distributed {

/// A model as data parallel training sees it.
struct ModelParts {
  std::vector<at::Tensor> state;      ///< every parameter and buffer, shared ones once
  std::vector<at::Tensor> trainable;  ///< parameters that require a gradient, shared ones once
  std::vector<std::string> names;     ///< of `trainable`
  std::string text;  ///< a line for each name and option: what must be the same in all processes
};

/// `device`: that of the group. The text says which tensors are on the CPU, on it, or elsewhere.
ModelParts model_parts(const torch::nn::Module& model, const at::Device& device);

}  // namespace attentive::distributed
