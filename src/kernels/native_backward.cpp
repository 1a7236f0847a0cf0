#include "kernels/native_backward.h"

#include <algorithm>

#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/function.h>

namespace attentive::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

Backend backend_in(AutogradContext* context) {
  return static_cast<Backend>(context->saved_data["backend"].toInt());
}

void keep(AutogradContext* context, Backend backend) {
  context->saved_data["backend"] = static_cast<int64_t>(backend);
}

// From the inputs of a backward pass to its gradients, which are known.
class FirstDerivative : public torch::autograd::Function<FirstDerivative> {
 public:
  static variable_list forward(AutogradContext* context, const at::TensorList& /*inputs*/, Backend backend,
                               const variable_list* gradients) {
    keep(context, backend);
    return *gradients;
  }

  static variable_list backward(AutogradContext* context, const variable_list& /*gradients*/) {
    TORCH_CHECK_NOT_IMPLEMENTED(false, "attention: backend ", to_string(backend_in(context)),
                                " has no second derivative; differentiate twice through Backend::Reference");
  }
};

class DifferentiableOnce : public torch::autograd::Function<DifferentiableOnce> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, Backend backend) {
    keep(context, backend);
    return x.detach();
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    auto one = first_derivative(backend_in(context), gradients,
                                [&] { return variable_list{gradients[0].detach()}; });
    one.emplace_back();
    return one;
  }
};

}  // namespace

std::vector<at::Tensor> first_derivative(Backend backend, const std::vector<at::Tensor>& inputs,
                                         const std::function<std::vector<at::Tensor>()>& compute) {
  if (!at::GradMode::is_enabled()) return compute();
  auto gradients = [&] {
    const at::NoGradGuard no_grad;
    return compute();
  }();
  // A custom function takes and returns no undefined tensor.
  const auto defined = [](const variable_list& some) {
    variable_list found;
    std::copy_if(some.begin(), some.end(), std::back_inserter(found),
                 [](const at::Tensor& x) { return x.defined(); });
    return found;
  };
  const auto known = defined(gradients), from = defined(inputs);
  auto linked = FirstDerivative::apply(at::TensorList(from), backend, &known);
  for (auto next = linked.begin(); auto& gradient : gradients) {
    if (gradient.defined()) gradient = std::move(*next++);
  }
  return gradients;
}

at::Tensor differentiable_once(Backend backend, const at::Tensor& x) {
  return DifferentiableOnce::apply(x, backend);
}

void VersionWatch::watch(const at::Tensor& result) {
  // The counter is shared with every view of the result, whatever becomes of the tensor.
  const auto& version = result.unsafeGetTensorImpl()->version_counter();
  seen_.emplace_back(version, version.current_version());
}

bool VersionWatch::any() const {
  return std::any_of(seen_.begin(), seen_.end(),
                     [](const auto& one) { return one.first.current_version() != one.second; });
}

}  // namespace attentive::kernels
