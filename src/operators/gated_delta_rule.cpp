#include <algorithm>
#include <string>
#include <utility>

#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/enum_tag.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/functorch/DynamicLayer.h>
#include <ATen/functorch/TensorWrapper.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "core/autocast_modes.h"
#include "core/check.h"
#include "functional/gated_delta_rule_check.h"
#include "kernels/problem.h"
#include "operators/compute.h"

namespace attentive::operators {
namespace {

using at::Tensor;
using kernels::DeltaResult;
using kernels::DeltaTensors;
using kernels::requires_gradient;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using torch::jit::Stack;

constexpr const char* kGatedDeltaRule = "gated_delta_rule";

// The last arguments of each operator: seven tensors, then three numbers.
constexpr size_t kDeltaTensors = 7, kDeltaArguments = kDeltaTensors + 3;

struct DeltaCall {
  DeltaTensors x;
  GatedDeltaRuleCall numbers;
};

Tensor tensor_of(const c10::IValue& x) {
  return x.isNone() ? Tensor() : x.toTensor();
}

// Reads the arguments, which stay on the stack.
DeltaCall read_delta_call(const Stack& stack, bool state_first = false) {
  const auto* const from = stack.data() + stack.size() - kDeltaArguments;
  const auto *const q = from + (state_first ? 1 : 0), *const numbers = from + kDeltaTensors;
  return {{tensor_of(q[0]), tensor_of(q[1]), tensor_of(q[2]), tensor_of(q[3]), tensor_of(q[4]),
           tensor_of(state_first ? from[0] : q[5])},
          {.scale = numbers[0].to<std::optional<double>>(),
           .normalize_eps = numbers[1].to<std::optional<double>>(),
           .delta = numbers[2].toBool(),
           .sequence_offsets = tensor_of(numbers[-1])}};
}

// The incoming gradients, which the backward operator has before the others; they may be undefined.
DeltaResult read_incoming(const Stack& stack) {
  const auto* const from = stack.data() + stack.size() - kDeltaArguments - 2;
  return {tensor_of(from[0]), tensor_of(from[1])};
}

// ---- Kernels of devices, and of tensors without memory.

void delta_forward(const c10::OperatorHandle& /*op*/, Stack* stack) {
  const auto [x, numbers] = read_delta_call(*stack);
  const Inside inside;
  const at::NoGradGuard no_grad;
  auto [output, state] = gated_delta_rule(x.q, x.k, x.v, x.gate, x.beta, numbers, x.state);
  // An operator returns no argument.
  if (x.state.defined() && state.is_alias_of(x.state)) state = state.clone();
  torch::jit::drop(*stack, kDeltaArguments);
  torch::jit::push(*stack, laid_like(output, x.v), state.contiguous());
}

void delta_in_place(const c10::OperatorHandle& /*op*/, Stack* stack) {
  auto [x, numbers] = read_delta_call(*stack, /*state_first=*/true);
  const Inside inside;
  const auto output = gated_delta_rule_(x.state, x.q, x.k, x.v, x.gate, x.beta, numbers);
  torch::jit::drop(*stack, kDeltaArguments);
  torch::jit::push(*stack, laid_like(output, x.v));
}

template <bool kWithGraph>
void delta_backward(const c10::OperatorHandle& /*op*/, Stack* stack) {
  auto [x, numbers] = read_delta_call(*stack);
  const Inside inside;
  const auto rule = checked_delta_rule(kGatedDeltaRule, x, numbers);
  const auto found = [&, &tensors = x] {
    const WithAutograd with_autograd;
    return kernels::delta_rule_gradients(rule, tensors, read_incoming(*stack), kWithGraph);
  }();
  torch::jit::drop(*stack, kDeltaArguments + 2);
  const auto all = all_of(x);
  for (size_t n = 0; n < all.size(); ++n) {
    torch::jit::push(*stack, !all[n]->defined() ? nothing(x.q.options())
                             : kWithGraph       ? found[n]
                                                : laid_like(found[n], *all[n]));
  }
}

enum class DeltaOperator { Forward, InPlace, Backward };

template <DeltaOperator kOf>
void delta_shapes(const c10::OperatorHandle& op, Stack* stack) {
  const auto [x, numbers] = read_delta_call(*stack, kOf == DeltaOperator::InPlace);
  TORCH_CHECK_VALUE(x.q.dim() == 4 && x.k.dim() == 4 && x.v.dim() == 4, kGatedDeltaRule,
                    ": expected q, k and v of four dimensions, got ", x.q.dim(), ", ", x.k.dim(), " and ",
                    x.v.dim());
  torch::jit::drop(*stack, op.schema().arguments().size());
  if (kOf == DeltaOperator::Backward) {
    for (const auto* some : all_of(x))
      torch::jit::push(*stack, some->defined() ? at::empty_like(*some) : nothing(x.q.options()));
    return;
  }
  torch::jit::push(*stack, at::empty_like(x.v));
  if (kOf == DeltaOperator::InPlace) return;
  const auto& offsets = numbers.sequence_offsets;
  const auto sequences = offsets.defined() ? offsets.sym_numel() - 1 : x.v.sym_size(0);
  torch::jit::push(*stack, at::empty_symint({sequences, x.v.sym_size(1), x.k.sym_size(3), x.v.sym_size(3)},
                                            x.v.options().dtype(x.sums())));
}

// ---- Autograd and autocast.

class GatedDeltaRuleOperator : public torch::autograd::Function<GatedDeltaRuleOperator> {
 public:
  // The stack holds the call.
  static variable_list forward(AutogradContext* context, const at::TensorList& /*inputs*/,
                               const c10::OperatorHandle& op, const DeltaCall& call, Stack* stack) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const auto& [x, numbers] = call;
    context->save_for_backward({x.q, x.k, x.v, x.gate, x.beta, x.state, numbers.sequence_offsets});
    context->saved_data["numbers"] =
        c10::ivalue::Tuple::create(std::vector<c10::IValue>(stack->end() - 3, stack->end()));
    context->set_materialize_grads(false);
    op.callBoxed(stack);
    auto last = torch::jit::pop(*stack).toTensor(), output = torch::jit::pop(*stack).toTensor();
    return {output, last};
  }

  static variable_list backward(AutogradContext* context, const variable_list& incoming) {
    // More gradients than forward() has arguments may be returned if they are undefined.
    if (!incoming[0].defined() && !incoming[1].defined()) return variable_list(kDeltaArguments);
    static const auto op =
        c10::Dispatcher::singleton().findSchemaOrThrow("attentive::gated_delta_rule_backward", "");
    const auto saved = context->get_saved_variables();
    Stack stack;
    for (const auto* tensors : {&incoming, &saved})
      for (const auto& x : *tensors) torch::jit::push(stack, as_optional(x));
    for (const auto& number : context->saved_data["numbers"].toTupleRef().elements())
      torch::jit::push(stack, number);
    op.callBoxed(stack);
    variable_list result;
    for (size_t n = 0; n < stack.size(); ++n) {
      if (saved[n].defined()) result.push_back(std::move(stack[n]).toTensor());
    }
    result.resize(kDeltaArguments);
    return result;
  }
};

void call_below_autograd(const c10::OperatorHandle& op, Stack* stack) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  op.callBoxed(stack);
}

void delta_forward_with_autograd(const c10::OperatorHandle& op, Stack* stack) {
  auto call = read_delta_call(*stack);
  auto& [x, numbers] = call;
  for (const auto* some : all_of(x)) {
    TORCH_CHECK_NOT_IMPLEMENTED(!has_tangent(*some), kGatedDeltaRule,
                                ": the operator does not compute forward-mode derivatives; the function of "
                                "C++ does");
  }
  if (!requires_gradient(x)) return call_below_autograd(op, stack);
  auto& offsets = numbers.sequence_offsets;
  if (!at::functorch::maybeCurrentDynamicLayer()) {
    const auto results = GatedDeltaRuleOperator::apply(at::TensorList(defined_of(x)), op, call, stack);
    return torch::jit::push(*stack, results[0], results[1]);
  }
  // torch.func refuses autograd functions of C++, so the definition is recorded. It wraps the offsets too,
  // whose numbers are read.
  const Inside inside;
  while (const auto* wrapper = at::functorch::maybeGetTensorWrapper(offsets)) offsets = wrapper->value();
  const auto rule = checked_delta_rule(kGatedDeltaRule, x, numbers);
  const auto [output, last] = kernels::reference::delta_rule(rule, x);
  torch::jit::drop(*stack, kDeltaArguments);
  torch::jit::push(*stack, output, last);
}

void delta_backward_with_autograd(const c10::OperatorHandle& op, Stack* stack) {
  const auto incoming = read_incoming(*stack);
  if (!requires_gradient(read_delta_call(*stack).x) && !requires_gradient(incoming.output) &&
      !requires_gradient(incoming.state))
    return call_below_autograd(op, stack);
  delta_backward</*kWithGraph=*/true>(op, stack);
}

template <bool kInPlace>
void delta_with_autocast(const c10::OperatorHandle& op, Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const auto q = stack->end() - kDeltaArguments + (kInPlace ? 1 : 0);
  const auto device = q->toTensor().device().type();
  const auto type = at::autocast::get_autocast_dtype(device);
  std::for_each(q, q + 3, [&](auto& x) { x = at::autocast::cached_cast(type, x.toTensor(), device); });
  op.callBoxed(stack);
}

}  // namespace

void add_gated_delta_rule(torch::Library& library) {
  using c10::DispatchKey;
  const std::vector<at::Tag> pure{at::Tag::pt2_compliant_tag};
  const auto boxed = [&]<auto kKernel>(const char* name, DispatchKey key) {
    library.impl(name, torch::dispatch(key, torch::CppFunction::makeFromBoxedFunction<kKernel>()));
  };
  const char *const of_it = "gated_delta_rule_backward", *const in_place = "gated_delta_rule_";
  // torch.library.register_vmap takes no keyword-only tensors.
  const std::string tensors = "Tensor q, Tensor k, Tensor v, Tensor? gate=None, Tensor? beta=None, ",
                    state = "Tensor? state=None, ",
                    others =
                        "Tensor? sequence_offsets=None, *, float? scale=None, float? normalize_eps=None, "
                        "bool delta=True) -> ";
  const auto define = [&](const std::string& schema) { library.def(schema.c_str(), pure); };
  define("gated_delta_rule(" + tensors + state + others + "(Tensor output, Tensor last_state)");
  define("gated_delta_rule_(Tensor(a!) state, " + tensors + others + "Tensor");
  define(
      "gated_delta_rule_backward(Tensor? grad_output, Tensor? grad_last_state, " + tensors + state + others +
      "(Tensor grad_q, Tensor grad_k, Tensor grad_v, Tensor grad_gate, Tensor grad_beta, Tensor grad_state)");
  for (const auto key : {DispatchKey::CPU, DispatchKey::CUDA}) {
    boxed.template operator()<&delta_forward>(kGatedDeltaRule, key);
    boxed.template operator()<&delta_backward<false>>(of_it, key);
    boxed.template operator()<&delta_in_place>(in_place, key);
  }
  boxed.template operator()<&call_below_autograd>(in_place, DispatchKey::Autograd);
  boxed.template operator()<&delta_shapes<DeltaOperator::Forward>>(kGatedDeltaRule, DispatchKey::Meta);
  boxed.template operator()<&delta_shapes<DeltaOperator::InPlace>>(in_place, DispatchKey::Meta);
  boxed.template operator()<&delta_shapes<DeltaOperator::Backward>>(of_it, DispatchKey::Meta);
  boxed.template operator()<&delta_forward_with_autograd>(kGatedDeltaRule, DispatchKey::Autograd);
  boxed.template operator()<&delta_backward_with_autograd>(of_it, DispatchKey::Autograd);
  for (const auto key : {DispatchKey::AutocastCPU, DispatchKey::AutocastCUDA}) {
    boxed.template operator()<&delta_with_autocast<false>>(kGatedDeltaRule, key);
    boxed.template operator()<&delta_with_autocast<true>>(in_place, key);
  }
}

}  // namespace attentive::operators
