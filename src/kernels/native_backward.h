#pragma once

// Helpers shared by the backward passes of fused kernels, on the CPU and on CUDA.

#include <functional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <attentive/core/options.h>

namespace attentive::kernels {

/// Returns the gradients that `compute` returns, for a backend without second derivatives: under
/// create_graph, differentiating the gradients again throws an error that names the backend. `inputs` are the
/// tensors on which the gradients depend. Inputs and gradients may be undefined.
std::vector<at::Tensor> first_derivative(Backend backend, const std::vector<at::Tensor>& inputs,
                                         const std::function<std::vector<at::Tensor>()>& compute);

/// Overload with the text of the error.
std::vector<at::Tensor> first_derivative(const char* refusal, const std::vector<at::Tensor>& inputs,
                                         const std::function<std::vector<at::Tensor>()>& compute);

/// The gradients of `leaves` by autograd, from those of results; results without one, or that need none, do
/// not count. Gradients of what the others do not depend on are zeros, as a kernel's are.
std::vector<at::Tensor> gradients_of_leaves(const std::vector<at::Tensor>& results,
                                            const std::vector<at::Tensor>& incoming,
                                            const std::vector<at::Tensor>& leaves, bool create_graph);

/// Returns x as an input for a kernel that builds its own graph; differentiating the gradient of x again
/// throws the error above.
at::Tensor differentiable_once(Backend backend, const at::Tensor& x);

/// Detects results that were changed in place after they were computed. Autograd raises an error if a
/// function saved its result and the caller then changed it (`y += x`). A function that instead saves
/// variable_data(), which has a separate version counter, can ask this class and recompute a changed result.
class VersionWatch {
 public:
  void watch(const at::Tensor& result);
  bool any() const;

 private:
  std::vector<std::pair<c10::VariableVersion, uint32_t>> seen_;
};

}  // namespace attentive::kernels
