#pragma once

// The comparisons that every notebook class passes: what PyTorch computed, and what PyTorch drew.

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <attentive/core/mask.h>
#include <attentive/core/options.h>

namespace attentive::test {

using Inputs = std::vector<at::Tensor>;

// How to build and call one class. `call` binds `Weights` to forward_with_weights.
struct GoldenModule {
  std::vector<std::string> inputs = {"x"};
  bool draws_inputs = false;  // normally distributed, right after the seed, before the module
  std::function<std::shared_ptr<torch::nn::Module>()> make;
  std::function<std::pair<at::Tensor, at::Tensor>(torch::nn::Module&, const Inputs&, const Mask&, Weights)>
      call;
};

template <class Holder>
auto bind_one_input() {
  return [](torch::nn::Module& module, const Inputs& inputs, const Mask& mask, Weights which) {
    return dynamic_cast<typename Holder::Impl&>(module).forward_with_weights(inputs[0], mask, which);
  };
}

// Weights drawn from the golden's seed (where it holds them whole), then output, weights and gradients in
// eval mode, by the reference and by the backend that is chosen.
void check_golden(const std::string& name, const GoldenModule& module, const at::Device& device);

// Built, then run in train mode after one seed, with the notebook's dropout stream. CPU only: CUDA draws
// others.
void check_training(const std::string& name, const GoldenModule& module);

// The first CUDA device, or a visible SKIP.
at::Device cuda_or_skip();

at::Tensor sentence();  // (6, 3): "Your journey starts with one step"
at::Tensor batch();     // (2, 6, 3): the sentence twice

// |got - printed| <= half a unit of the fourth decimal, and what float32 may differ.
bool as_printed(const at::Tensor& got, const at::Tensor& printed);

}  // namespace attentive::test
