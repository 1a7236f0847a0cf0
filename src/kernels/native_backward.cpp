#include "kernels/native_backward.h"

#include <algorithm>
#include <string>

#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/function.h>

namespace attentive::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// A graph node from the inputs of a backward pass to its gradients, which are already computed; its own
// backward pass throws.
class FirstDerivative : public torch::autograd::Function<FirstDerivative> {
 public:
  static variable_list forward(AutogradContext* context, const at::TensorList& /*inputs*/,
                               const std::string& refusal, const variable_list* gradients) {
    context->saved_data["refusal"] = refusal;
    return *gradients;
  }

  static variable_list backward(AutogradContext* context, const variable_list& /*gradients*/) {
    TORCH_CHECK_NOT_IMPLEMENTED(false, context->saved_data["refusal"].toStringRef());
  }
};

std::string refusal_of(Backend backend) {
  return "attention: backend " + std::string(to_string(backend)) +
         " has no second derivative; differentiate twice through Backend::Reference";
}

variable_list linked(const std::string& refusal, const variable_list& inputs,
                     const std::function<variable_list()>& compute) {
  auto gradients = [&] {
    const at::NoGradGuard no_grad;
    return compute();
  }();
  // A custom function can neither take nor return an undefined tensor.
  const auto defined = [](const variable_list& some) {
    variable_list found;
    std::copy_if(some.begin(), some.end(), std::back_inserter(found),
                 [](const at::Tensor& x) { return x.defined(); });
    return found;
  };
  const auto known = defined(gradients), from = defined(inputs);
  auto linked = FirstDerivative::apply(at::TensorList(from), refusal, &known);
  for (auto next = linked.begin(); auto& gradient : gradients) {
    if (gradient.defined()) gradient = std::move(*next++);
  }
  return gradients;
}

class DifferentiableOnce : public torch::autograd::Function<DifferentiableOnce> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, Backend backend) {
    context->saved_data["backend"] = static_cast<int64_t>(backend);
    return x.detach();
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto backend = static_cast<Backend>(context->saved_data["backend"].toInt());
    auto one = first_derivative(backend, gradients, [&] { return variable_list{gradients[0].detach()}; });
    one.emplace_back();
    return one;
  }
};

}  // namespace

variable_list gradients_of_leaves(const variable_list& results, const variable_list& incoming,
                                  const variable_list& leaves, bool create_graph) {
  variable_list roots, of_roots;
  for (size_t n = 0; n < results.size(); ++n) {
    if (!incoming[n].defined() || !results[n].requires_grad()) continue;
    roots.push_back(results[n]);
    of_roots.push_back(incoming[n].to(results[n].scalar_type()));
  }
  variable_list found(leaves.size());
  if (!roots.empty())
    found = torch::autograd::grad(roots, leaves, of_roots, /*retain_graph=*/create_graph, create_graph,
                                  /*allow_unused=*/true);
  for (size_t n = 0; n < found.size(); ++n) {
    if (!found[n].defined()) found[n] = at::zeros_like(leaves[n]);
  }
  return found;
}

std::vector<at::Tensor> first_derivative(Backend backend, const std::vector<at::Tensor>& inputs,
                                         const std::function<std::vector<at::Tensor>()>& compute) {
  return at::GradMode::is_enabled() ? linked(refusal_of(backend), inputs, compute) : compute();
}

std::vector<at::Tensor> first_derivative(const char* refusal, const std::vector<at::Tensor>& inputs,
                                         const std::function<std::vector<at::Tensor>()>& compute) {
  return at::GradMode::is_enabled() ? linked(refusal, inputs, compute) : compute();
}

at::Tensor differentiable_once(Backend backend, const at::Tensor& x) {
  return DifferentiableOnce::apply(x, backend);
}

void VersionWatch::watch(const at::Tensor& result) {
  // Views share the version counter, and the copy here outlives the tensor.
  const auto& version = result.unsafeGetTensorImpl()->version_counter();
  seen_.emplace_back(version, version.current_version());
}

bool VersionWatch::any() const {
  return std::any_of(seen_.begin(), seen_.end(),
                     [](const auto& one) { return one.first.current_version() != one.second; });
}

}  // namespace attentive::kernels
