#pragma once

#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace attentive::test {

/// Compares autograd's gradient of sum(f(inputs) * random) with central differences in float64 (eps 1e-6,
/// atol 1e-5, rtol 1e-3). `f` may return several tensors' sum; every input must be float64. Empty if they
/// agree.
std::string gradcheck(const std::function<at::Tensor(const std::vector<at::Tensor>&)>& f,
                      std::vector<at::Tensor> inputs);

/// Overload for a function that reads its tensors itself, such as a module's parameters: `leaves` are
/// perturbed in place and restored.
std::string gradcheck_leaves(const std::function<at::Tensor()>& f, const std::vector<at::Tensor>& leaves);

/// Does so along three directions of each leaf, whose elements are 1 or -1, instead of along each element:
/// for models, which have many parameters, and whose parts are compared element by element elsewhere.
std::string gradcheck_directions(const std::function<at::Tensor()>& f, const std::vector<at::Tensor>& leaves);

}  // namespace attentive::test
