#pragma once

// What the backward passes of our own kernels share, on the CPU and on CUDA.

#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace attentive::kernels {

// Throws where a gradient is being differentiated again.
void refuse_second_derivative();

// Tells whether results were changed in place since they were computed. Autograd raises for a result that its
// function saved and the caller changed (`y += x`); a function that saves the result's memory under a version
// of its own (variable_data) and asks here can compute it anew.
class Changes {
 public:
  void watch(const at::Tensor& result);
  bool any() const;

 private:
  std::vector<std::pair<c10::VariableVersion, uint32_t>> seen_;
};

}  // namespace attentive::kernels
