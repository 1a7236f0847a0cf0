#include "operators/gated_delta_rule.h"

#include <algorithm>
#include <array>
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

#include "core/autocast_modes.h"
#include "core/check.h"
#include "functional/gated_delta_rule_check.h"
#include "kernels/native_cpu/delta_rule.h"
#include "kernels/problem.h"
#include "kernels/reference/delta_rule.h"
#include "operators/compute.h"

namespace attentive::operators {
namespace {

using at::Tensor;
using kernels::DeltaGradients;
using kernels::DeltaResult;
using kernels::DeltaTensors;
using kernels::requires_gradient;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using torch::jit::Stack;

constexpr const char* kGatedDeltaRule = "gated_delta_rule";
// torch.library.register_vmap takes no keyword-only tensors.
constexpr const char* kDeltaForward =
    "gated_delta_rule(Tensor q, Tensor k, Tensor v, Tensor? gate=None, Tensor? beta=None, Tensor? "
    "state=None, "
    "Tensor? sequence_offsets=None, *, float? scale=None, float? normalize_eps=None, bool delta=True) -> "
    "(Tensor output, Tensor last_state)";
constexpr const char* kDeltaInPlace =
    "gated_delta_rule_(Tensor(a!) state, Tensor q, Tensor k, Tensor v, Tensor? gate=None, Tensor? beta=None, "
    "Tensor? sequence_offsets=None, *, float? scale=None, float? normalize_eps=None, bool delta=True) -> "
    "Tensor";
constexpr const char* kDeltaBackward =
    "gated_delta_rule_backward(Tensor? grad_output, Tensor? grad_last_state, Tensor q, Tensor k, Tensor v, "
    "Tensor? gate=None, Tensor? beta=None, Tensor? state=None, Tensor? sequence_offsets=None, *, "
    "float? scale=None, float? normalize_eps=None, bool delta=True) -> "
    "(Tensor grad_q, Tensor grad_k, Tensor grad_v, Tensor grad_gate, Tensor grad_beta, Tensor grad_state)";

struct DeltaCall {
  DeltaTensors x;
  GatedDeltaRuleCall numbers;
};

// Incoming gradients may be undefined.
struct DeltaBackwardCall {
  DeltaResult incoming;
  DeltaCall call;
};

Tensor pop_delta_tensor(Stack& stack) {
  auto value = torch::jit::pop(stack);
  return value.isNone() ? Tensor() : std::move(value).toTensor();
}

DeltaCall pop_delta_call(Stack& stack, bool state_first = false) {
  DeltaCall call;
  auto& [q, k, v, gate, beta, state] = call.x;
  call.numbers.delta = torch::jit::pop(stack).toBool();
  call.numbers.normalize_eps = torch::jit::pop(stack).toOptional<double>();
  call.numbers.scale = torch::jit::pop(stack).toOptional<double>();
  call.numbers.sequence_offsets = pop_delta_tensor(stack);
  if (!state_first) state = pop_delta_tensor(stack);
  for (auto* some : {&beta, &gate, &v, &k, &q}) *some = pop_delta_tensor(stack);
  if (state_first) state = pop_delta_tensor(stack);
  return call;
}

DeltaBackwardCall pop_delta_backward_call(Stack& stack) {
  auto call = pop_delta_call(stack);
  auto state = pop_delta_tensor(stack), output = pop_delta_tensor(stack);
  return {{std::move(output), std::move(state)}, std::move(call)};
}

void push(const DeltaCall& call, Stack& stack, bool state_first = false) {
  const auto& [x, numbers] = call;
  if (state_first) torch::jit::push(stack, x.state);
  torch::jit::push(stack, x.q, x.k, x.v, as_optional(x.gate), as_optional(x.beta));
  if (!state_first) torch::jit::push(stack, as_optional(x.state));
  torch::jit::push(stack, as_optional(numbers.sequence_offsets), numbers.scale, numbers.normalize_eps,
                   numbers.delta);
}

void push(const DeltaBackwardCall& backward, Stack& stack) {
  torch::jit::push(stack, as_optional(backward.incoming.output), as_optional(backward.incoming.state));
  push(backward.call, stack);
}

// ---- Kernels of devices, and of tensors without memory.

void delta_forward(const c10::OperatorHandle& /*op*/, Stack* stack) {
  const auto [x, numbers] = pop_delta_call(*stack);
  const Inside inside;
  const at::NoGradGuard no_grad;
  auto [output, state] = gated_delta_rule(x.q, x.k, x.v, x.gate, x.beta, numbers, x.state);
  // An operator returns no argument.
  if (x.state.defined() && state.is_alias_of(x.state)) state = state.clone();
  torch::jit::push(*stack, laid_like(output, x.v), state.contiguous());
}

void delta_in_place(const c10::OperatorHandle& /*op*/, Stack* stack) {
  auto [x, numbers] = pop_delta_call(*stack, /*state_first=*/true);
  const Inside inside;
  const auto output = gated_delta_rule_(x.state, x.q, x.k, x.v, x.gate, x.beta, numbers);
  torch::jit::push(*stack, laid_like(output, x.v));
}

void push_delta_gradients(const DeltaGradients& found, const DeltaTensors& x, Stack& stack) {
  const auto all = all_of(x);
  for (size_t n = 0; n < all.size(); ++n) {
    torch::jit::push(stack, found[n].defined() ? laid_like(found[n].to(all[n]->scalar_type()), *all[n])
                                               : nothing(x.q.options()));
  }
}

constexpr std::array kAllDeltaTensors{true, true, true, true, true, true};

void delta_backward(const c10::OperatorHandle& /*op*/, Stack* stack) {
  const auto [incoming, call] = pop_delta_backward_call(*stack);
  const Inside inside;
  const auto [rule, x] = checked_delta_rule(kGatedDeltaRule, call.x, call.numbers);
  DeltaGradients found;
  if (kernels::native_cpu::computes_delta_rule(x)) {
    const at::NoGradGuard no_grad;
    found = kernels::native_cpu::delta_rule_gradients(rule, x, incoming);
  } else {
    const WithAutograd with_autograd;
    found =
        kernels::reference::delta_rule_gradients(rule, x, kAllDeltaTensors, incoming, /*create_graph=*/false);
  }
  push_delta_gradients(found, x, *stack);
}

void check_delta_ranks(const DeltaTensors& x) {
  TORCH_CHECK_VALUE(x.q.dim() == 4 && x.k.dim() == 4 && x.v.dim() == 4, kGatedDeltaRule,
                    ": expected q, k and v of four dimensions, got ", x.q.dim(), ", ", x.k.dim(), " and ",
                    x.v.dim());
}

void delta_forward_shapes(const c10::OperatorHandle& /*op*/, Stack* stack) {
  const auto [x, numbers] = pop_delta_call(*stack);
  check_delta_ranks(x);
  const auto& offsets = numbers.sequence_offsets;
  const auto sequences = offsets.defined() ? offsets.sym_numel() - 1 : x.v.sym_size(0);
  torch::jit::push(*stack, at::empty_like(x.v),
                   at::empty_symint({sequences, x.v.sym_size(1), x.k.sym_size(3), x.v.sym_size(3)},
                                    x.v.options().dtype(x.sums())));
}

void delta_in_place_shapes(const c10::OperatorHandle& /*op*/, Stack* stack) {
  const auto call = pop_delta_call(*stack, /*state_first=*/true);
  check_delta_ranks(call.x);
  torch::jit::push(*stack, at::empty_like(call.x.v));
}

void delta_backward_shapes(const c10::OperatorHandle& /*op*/, Stack* stack) {
  const auto [incoming, call] = pop_delta_backward_call(*stack);
  check_delta_ranks(call.x);
  for (const auto* some : all_of(call.x))
    torch::jit::push(*stack, some->defined() ? at::empty_like(*some) : nothing(call.x.q.options()));
}

// ---- Autograd and autocast.

struct DeltaNumbers : torch::CustomClassHolder {
  GatedDeltaRuleCall numbers;
};

class GatedDeltaRuleOperator : public torch::autograd::Function<GatedDeltaRuleOperator> {
 public:
  static variable_list forward(AutogradContext* context, const Tensor& q, const Tensor& k, const Tensor& v,
                               const std::optional<Tensor>& gate, const std::optional<Tensor>& beta,
                               const std::optional<Tensor>& state, const c10::OperatorHandle& op,
                               const GatedDeltaRuleCall& numbers) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const DeltaCall call{
        {q, k, v, gate.value_or(Tensor()), beta.value_or(Tensor()), state.value_or(Tensor())}, numbers};
    Stack stack;
    push(call, stack);
    op.callBoxed(stack);
    auto kept = c10::make_intrusive<DeltaNumbers>();
    kept->numbers = numbers;
    const auto& x = call.x;
    context->save_for_backward(
        {x.q, x.k, x.v, x.gate, x.beta, x.state, std::exchange(kept->numbers.sequence_offsets, Tensor())});
    context->saved_data["numbers"] = c10::IValue::make_capsule(kept);
    context->set_materialize_grads(false);
    auto last = pop_delta_tensor(stack), output = pop_delta_tensor(stack);
    return {output, last};
  }

  static variable_list backward(AutogradContext* context, const variable_list& incoming) {
    variable_list result(8);  // of forward() after the context
    if (!incoming[0].defined() && !incoming[1].defined()) return result;
    const auto saved = context->get_saved_variables();
    const auto kept =
        c10::static_intrusive_pointer_cast<DeltaNumbers>(context->saved_data["numbers"].toCapsule());
    DeltaBackwardCall arguments{
        {incoming[0], incoming[1]},
        {{saved[0], saved[1], saved[2], saved[3], saved[4], saved[5]}, kept->numbers}};
    arguments.call.numbers.sequence_offsets = saved[6];
    static const auto op =
        c10::Dispatcher::singleton().findSchemaOrThrow("attentive::gated_delta_rule_backward", "");
    Stack stack;
    push(arguments, stack);
    op.callBoxed(stack);
    const auto all = all_of(arguments.call.x);
    for (size_t n = 0; n < all.size(); ++n) {
      if (all[n]->defined()) result[n] = std::move(stack[n]).toTensor();
    }
    return result;
  }
};

template <class Arguments>
void call_below_autograd(const c10::OperatorHandle& op, const Arguments& arguments, Stack& stack) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  push(arguments, stack);
  op.callBoxed(stack);
}

bool is_delta_differentiated(const DeltaTensors& x) {
  const auto all = all_of(x);
  return std::any_of(all.begin(), all.end(), [](const Tensor* some) { return requires_gradient(*some); });
}

// The composed chunks. torch.func wraps the offsets too, whose numbers are read.
DeltaResult by_definition(const DeltaCall& call) {
  const Inside inside;
  auto numbers = call.numbers;
  auto& offsets = numbers.sequence_offsets;
  while (const auto* wrapper = at::functorch::maybeGetTensorWrapper(offsets)) offsets = wrapper->value();
  const auto [rule, x] = checked_delta_rule(kGatedDeltaRule, call.x, numbers);
  return kernels::reference::delta_rule(rule, x);
}

void delta_forward_with_autograd(const c10::OperatorHandle& op, Stack* stack) {
  const auto call = pop_delta_call(*stack);
  const auto& x = call.x;
  for (const auto* some : all_of(x)) {
    TORCH_CHECK_NOT_IMPLEMENTED(!has_tangent(*some), kGatedDeltaRule,
                                ": the operator does not compute forward-mode derivatives; the function of "
                                "C++ does");
  }
  if (!is_delta_differentiated(x)) return call_below_autograd(op, call, *stack);
  if (at::functorch::maybeCurrentDynamicLayer()) {  // torch.func refuses autograd functions of C++
    const auto [output, last] = by_definition(call);
    return torch::jit::push(*stack, output, last);
  }
  const auto results = GatedDeltaRuleOperator::apply(x.q, x.k, x.v, as_optional(x.gate), as_optional(x.beta),
                                                     as_optional(x.state), op, call.numbers);
  torch::jit::push(*stack, results[0], results[1]);
}

void delta_in_place_without_autograd(const c10::OperatorHandle& op, Stack* stack) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  op.callBoxed(*stack);
}

void delta_backward_with_autograd(const c10::OperatorHandle& op, Stack* stack) {
  const auto arguments = pop_delta_backward_call(*stack);
  const auto& [incoming, call] = arguments;
  if (!is_delta_differentiated(call.x) && !requires_gradient(incoming.output) &&
      !requires_gradient(incoming.state))
    return call_below_autograd(op, arguments, *stack);
  const Inside inside;
  const auto [rule, x] = checked_delta_rule(kGatedDeltaRule, call.x, call.numbers);
  const auto found =
      kernels::reference::delta_rule_gradients(rule, x, kAllDeltaTensors, incoming, /*create_graph=*/true);
  for (const auto& gradient : found)
    torch::jit::push(*stack, gradient.defined() ? gradient : nothing(x.q.options()));
}

template <bool kInPlace>
void delta_with_autocast(const c10::OperatorHandle& op, Stack* stack) {
  auto call = pop_delta_call(*stack, kInPlace);
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const auto device = call.x.q.device().type();
  const auto type = at::autocast::get_autocast_dtype(device);
  for (auto* some : {&call.x.q, &call.x.k, &call.x.v}) *some = at::autocast::cached_cast(type, *some, device);
  push(call, *stack, kInPlace);
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
  library.def(kDeltaForward, pure);
  library.def(kDeltaInPlace, pure);
  library.def(kDeltaBackward, pure);
  for (const auto key : {DispatchKey::CPU, DispatchKey::CUDA}) {
    boxed.template operator()<&delta_forward>(kGatedDeltaRule, key);
    boxed.template operator()<&delta_backward>(of_it, key);
    boxed.template operator()<&delta_in_place>(in_place, key);
  }
  boxed.template operator()<&delta_in_place_without_autograd>(in_place, DispatchKey::Autograd);
  boxed.template operator()<&delta_forward_shapes>(kGatedDeltaRule, DispatchKey::Meta);
  boxed.template operator()<&delta_backward_shapes>(of_it, DispatchKey::Meta);
  boxed.template operator()<&delta_in_place_shapes>(in_place, DispatchKey::Meta);
  boxed.template operator()<&delta_forward_with_autograd>(kGatedDeltaRule, DispatchKey::Autograd);
  boxed.template operator()<&delta_backward_with_autograd>(of_it, DispatchKey::Autograd);
  for (const auto key : {DispatchKey::AutocastCPU, DispatchKey::AutocastCUDA}) {
    boxed.template operator()<&delta_with_autocast<false>>(kGatedDeltaRule, key);
    boxed.template operator()<&delta_with_autocast<true>>(in_place, key);
  }
}

}  // namespace attentive::operators
