#pragma once

// What the backward passes of fused kernels share, on the CPU and on CUDA.

#include <functional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <attentive/core/options.h>

namespace attentive::kernels {

// The gradients that `compute` returns. No fused kernel has a second derivative: under create_graph, whoever
// differentiates them again gets an error that names the backend. `inputs` are the tensors that they depend on; on
// both sides some may be undefined.
std::vector<at::Tensor> first_derivative(Backend backend, const std::vector<at::Tensor>& inputs,
                                         const std::function<std::vector<at::Tensor>()>& compute);

// The same with the error's text.
std::vector<at::Tensor> first_derivative(const char* refusal, const std::vector<at::Tensor>& inputs,
                                         const std::function<std::vector<at::Tensor>()>& compute);

// The same numbers as an input of a kernel with a graph of its own, whose gradient then ends in that error.
at::Tensor differentiable_once(Backend backend, const at::Tensor& x);

// Tells whether results were changed in place since they were computed. Autograd raises for a result that its
// function saved and the caller changed (`y += x`); a function that saves the result's memory under a version
// of its own (variable_data) and asks here can compute it anew.
class VersionWatch {
 public:
  void watch(const at::Tensor& result);
  bool any() const;

 private:
  std::vector<std::pair<c10::VariableVersion, uint32_t>> seen_;
};

}  // namespace attentive::kernels
