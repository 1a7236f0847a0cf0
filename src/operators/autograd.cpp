#include <algorithm>
#include <utility>

#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/function.h>

#include "core/autocast_modes.h"
#include "core/check.h"
#include "kernels/problem.h"
#include "operators/compute.h"

namespace attentive::operators {
namespace {

using at::Tensor;
using kernels::requires_gradient;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using torch::jit::Stack;

Results run(Kind kind, const c10::OperatorHandle& op, const CallArguments& call) {
  Stack stack;
  push(kind, call, stack);
  op.callBoxed(stack);
  return pop_results(kind, stack);
}

Gradients run_backward(Kind kind, const BackwardArguments& arguments) {
  static const auto find = [](Kind which) {
    return c10::Dispatcher::singleton().findSchemaOrThrow(backward_name(which), "");
  };
  static const auto padded = find(Kind::Padded), packed = find(Kind::Packed);
  Stack stack;
  push(kind, arguments, stack);
  (kind == Kind::Padded ? padded : packed).callBoxed(stack);
  return pop_gradients(kind, stack);
}

// Operators have no rule for forward-mode differentiation; without this check they would drop the tangents.
void refuse_tangents(Kind kind, const CallArguments& call) {
  for (const auto tensor : kDifferentiable) {
    TORCH_CHECK_NOT_IMPLEMENTED(!has_tangent(call.*tensor), name_of(kind),
                                ": the operator does not compute forward-mode derivatives; "
                                "the function of C++ with Backend::Reference does");
  }
}

// The arguments of the backward operator that are no tensors.
struct Kept : torch::CustomClassHolder {
  BackwardArguments arguments;
};

// One call in the graph. The results are those of the operator; those that were asked for have gradients.
template <Kind kKind>
class OperatorCall : public torch::autograd::Function<OperatorCall<kKind>> {
 public:
  struct Returned {
    enum : size_t { output, logsumexp, statistics, weights };  // the weights of padded calls alone
  };

  // The first six tensors are inputs so that autograd computes their gradients.
  static variable_list forward(AutogradContext* context, const Tensor& /*q*/, const Tensor& /*k*/,
                               const Tensor& /*v*/, const std::optional<Tensor>& bias,
                               const std::optional<Tensor>& alibi_slopes, const std::optional<Tensor>& sinks,
                               const c10::OperatorHandle& op, CallArguments call) {
    const auto kept = c10::make_intrusive<Kept>();
    auto& arguments = kept->arguments;
    arguments.want_bias = requires_gradient_of(bias);
    arguments.want_alibi_slopes = requires_gradient_of(alibi_slopes);
    arguments.want_sinks = requires_gradient_of(sinks);
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    call.for_backward = true;
    const auto results = run(kKind, op, call);
    variable_list saved;
    for (const auto tensor : kTensors) saved.push_back(std::exchange(call.*tensor, Tensor()));
    saved.push_back(results.output);
    saved.push_back(results.statistics);
    context->save_for_backward(std::move(saved));
    arguments.call = std::move(call);
    context->saved_data["kept"] = c10::IValue::make_capsule(kept);
    context->set_materialize_grads(false);  // zeros of the weights' size would cost O(L S) memory
    variable_list plain{results.statistics};
    if (arguments.call.weights == Weights::None && kKind == Kind::Padded) plain.push_back(results.weights);
    if (!arguments.call.logsumexp) plain.push_back(results.logsumexp);
    context->mark_non_differentiable(plain);
    variable_list returned{results.output, results.logsumexp, results.statistics};
    if (kKind == Kind::Padded) returned.push_back(results.weights);
    return returned;
  }

  static variable_list backward(AutogradContext* context, const variable_list& incoming) {
    constexpr size_t kArguments = 8;  // of forward() after the context
    const variable_list none(kArguments);
    auto arguments =
        c10::static_intrusive_pointer_cast<Kept>(context->saved_data["kept"].toCapsule())->arguments;
    arguments.incoming = {incoming[Returned::output],
                          kKind == Kind::Padded ? incoming[Returned::weights] : Tensor(),
                          incoming[Returned::logsumexp]};
    const auto& given = arguments.incoming;
    if (!given.output.defined() && !given.weights.defined() && !given.logsumexp.defined()) return none;
    const auto saved = context->get_saved_variables();
    for (size_t i = 0; i < std::size(kTensors); ++i) arguments.call.*kTensors[i] = saved[i];
    arguments.output = saved[std::size(kTensors)];
    arguments.statistics = saved[std::size(kTensors) + 1];
    const auto found = run_backward(kKind, arguments);
    const auto if_wanted = [](bool wanted, const Tensor& gradient) { return wanted ? gradient : Tensor(); };
    variable_list gradients{found.q,
                            found.k,
                            found.v,
                            if_wanted(arguments.want_bias, found.bias),
                            if_wanted(arguments.want_alibi_slopes, found.alibi_slopes),
                            if_wanted(arguments.want_sinks, found.sinks)};
    gradients.resize(kArguments);
    return gradients;
  }

 private:
  static bool requires_gradient_of(const std::optional<Tensor>& x) { return x && x->requires_grad(); }
};

}  // namespace

template <Kind kKind>
void forward_with_autograd(const c10::OperatorHandle& op, Stack* stack) {
  auto call = pop_call(kKind, *stack);
  refuse_tangents(kKind, call);
  const bool differentiated = std::any_of(std::begin(kDifferentiable), std::end(kDifferentiable),
                                          [&](auto tensor) { return requires_gradient(call.*tensor); });
  if (!differentiated) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    push(kKind, call, *stack);
    op.callBoxed(stack);
    return;
  }
  const auto returned =
      OperatorCall<kKind>::apply(call.q, call.k, call.v, as_optional(call.bias),
                                 as_optional(call.alibi_slopes), as_optional(call.sinks), op, call);
  using Returned = typename OperatorCall<kKind>::Returned;
  Results results{
      returned[Returned::output], {}, returned[Returned::logsumexp], returned[Returned::statistics]};
  if (kKind == Kind::Padded) results.weights = returned[Returned::weights];
  push(kKind, results, *stack);
}

template <Kind kKind>
void backward_with_autograd(const c10::OperatorHandle& op, Stack* stack) {
  const auto arguments = pop_backward(kKind, *stack);
  const auto& call = arguments.call;
  const auto& incoming = arguments.incoming;
  const bool differentiated = std::any_of(std::begin(kDifferentiable), std::end(kDifferentiable),
                                          [&](auto tensor) { return requires_gradient(call.*tensor); }) ||
                              requires_gradient(incoming.output) || requires_gradient(incoming.weights) ||
                              requires_gradient(incoming.logsumexp);
  if (differentiated) {
    push(kKind, gradients_with_graph(kKind, arguments), *stack);
    return;
  }
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  push(kKind, arguments, *stack);
  op.callBoxed(stack);
}

template <Kind kKind>
void forward_with_autocast(const c10::OperatorHandle& op, Stack* stack) {
  auto call = pop_call(kKind, *stack);
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const auto device = call.q.device().type();
  const auto type = at::autocast::get_autocast_dtype(device);
  for (const auto tensor : {&CallArguments::q, &CallArguments::k, &CallArguments::v})
    call.*tensor = at::autocast::cached_cast(type, call.*tensor, device);
  push(kKind, call, *stack);
  op.callBoxed(stack);
}

template void forward_with_autograd<Kind::Padded>(const c10::OperatorHandle&, Stack*);
template void forward_with_autograd<Kind::Packed>(const c10::OperatorHandle&, Stack*);
template void backward_with_autograd<Kind::Padded>(const c10::OperatorHandle&, Stack*);
template void backward_with_autograd<Kind::Packed>(const c10::OperatorHandle&, Stack*);
template void forward_with_autocast<Kind::Padded>(const c10::OperatorHandle&, Stack*);
template void forward_with_autocast<Kind::Packed>(const c10::OperatorHandle&, Stack*);

}  // namespace attentive::operators
