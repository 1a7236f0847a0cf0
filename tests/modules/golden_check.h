#pragma once

// Comparisons that every notebook class must pass: with numbers that PyTorch computed and with numbers that
// it drew.

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

/// Functions that build and call one class. `call` passes its `Weights` to forward_with_weights.
struct GoldenModule {
  std::vector<std::string> inputs = {"x"};
  /// Whether inputs are drawn from a normal distribution, after the seed and before the module.
  bool draws_inputs = false;
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

/// Checks the weights drawn from the golden's seed (if the golden holds them completely), then output,
/// attention weights and gradients in evaluation mode, by the reference and by the chosen backend.
void check_golden(const std::string& name, const GoldenModule& golden_module, const at::Device& device);

/// Builds a module and runs it in training mode after one seed, with the notebook's dropout stream. CPU only,
/// since CUDA draws other numbers.
void check_training(const std::string& name, const GoldenModule& golden_module);

/// The first CUDA device, or a visible SKIP.
at::Device cuda_or_skip();

at::Tensor sentence();  ///< (6, 3): "Your journey starts with one step"
at::Tensor batch();     ///< (2, 6, 3): the sentence twice

/// Whether |got - printed| is at most half a unit of the fourth decimal plus the tolerance of float32.
bool as_printed(const at::Tensor& got, const at::Tensor& printed);

}  // namespace attentive::test
