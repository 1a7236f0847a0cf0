#include "kernels/native_cpu/delta_rule.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "core/autocast_modes.h"
#include "core/check.h"
#include "core/memory.h"
#include "kernels/delta_rule/kernel.h"
#include "kernels/reference/delta_rule.h"
#include "kernels/simd/selection.h"

namespace attentive::kernels::native_cpu {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The tensors as the kernel reads them: rows of numbers are contiguous, numbers of tokens float32.
DeltaTensors readable(const DeltaTensors& x) {
  const auto rows = [](const at::Tensor& some) {
    const bool contiguous = some.size(3) <= 1 || some.stride(3) == 1;
    return (contiguous ? some : some.contiguous()).resolve_neg();
  };
  const auto numbers = [&](const at::Tensor& some) {
    if (!some.defined()) return some;
    const auto wide = some.to(at::kFloat);
    return wide.dim() == 4 ? rows(wide) : wide.resolve_neg();
  };
  return {rows(x.q),       rows(x.k),       rows(x.v),
          numbers(x.gate), numbers(x.beta), x.state.defined() ? x.state.contiguous().resolve_neg() : x.state};
}

// T is const in a view that is only read.
template <class T>
Strided<T> view(const at::Tensor& x) {
  if (!x.defined()) return {};
  using Data = std::conditional_t<std::is_const_v<T>, const void, void>;
  Data* data;
  if constexpr (std::is_const_v<T>) {
    data = x.const_data_ptr();
  } else {
    data = x.mutable_data_ptr();
  }
  return {static_cast<T*>(data), x.stride(0), x.stride(1), x.stride(2)};
}

template <class T>
cpu::DeltaCall<T> call_of(const DeltaRule& rule, const DeltaTensors& x) {
  const bool packed = !rule.offsets.empty();
  return {.sequences = packed ? static_cast<int64_t>(rule.offsets.size()) - 1 : x.v.size(0),
          .heads = x.v.size(1),
          .group = x.groups(),
          .Dk = x.k.size(3),
          .Dv = x.v.size(3),
          .tokens = x.v.size(2),
          .offsets = packed ? rule.offsets.data() : nullptr,
          .scale = static_cast<float>(rule.scale),
          .normalize = rule.normalize_eps.has_value(),
          .eps = static_cast<float>(rule.normalize_eps.value_or(0.0)),
          .delta = rule.delta,
          .channel_gates = x.channel_gates(),
          .q = view<const T>(x.q),
          .k = view<const T>(x.k),
          .v = view<const T>(x.v),
          .gate = view<const float>(x.gate),
          .beta = view<const float>(x.beta),
          .state = x.state.defined() ? x.state.const_data_ptr<float>() : nullptr};
}

// A tensor with the strides of x, if its rows are contiguous then.
at::Tensor empty_rows_like(const at::Tensor& x) {
  const auto same = at::empty_like(x);
  const bool contiguous = x.dim() < 4 || x.size(3) <= 1 || same.stride(3) == 1;
  return advise_huge_pages(contiguous ? same : at::empty(x.sizes(), x.options()));
}

// Computes the output, and the last states into `last`.
at::Tensor compute(const DeltaRule& rule, const DeltaTensors& given, const at::Tensor& last) {
  const auto x = readable(given);
  const auto output = empty_rows_like(x.v);
  cpu::for_numbers(x.v.scalar_type(), [&](auto number) {
    using T = decltype(number);
    cpu::delta_forward(call_of<T>(rule, x), view<T>(output), last.mutable_data_ptr<float>());
  });
  return output;
}

DeltaResult compute(const DeltaRule& rule, const DeltaTensors& x) {
  const auto sequences = rule.offsets.empty() ? x.v.size(0) : static_cast<int64_t>(rule.offsets.size()) - 1;
  const auto last =
      at::empty({sequences, x.v.size(1), x.k.size(3), x.v.size(3)}, x.v.options().dtype(at::kFloat));
  return {compute(rule, x, last), last};
}

at::Tensor rows_like(const at::Tensor& gradient, const at::Tensor& x) {
  const auto same = gradient.to(x.scalar_type());
  return (same.size(3) <= 1 || same.stride(3) == 1 ? same : same.contiguous()).resolve_neg();
}

// The sum over the value heads of a key head, in their order, whatever the number of threads.
at::Tensor sum_of_groups(const at::Tensor& x, int64_t groups) {
  if (groups == 1) return x;
  const auto parts = x.unflatten(1, {x.size(1) / groups, groups});
  auto sum = parts.select(2, 0) + parts.select(2, 1);
  for (int64_t g = 2; g < groups; ++g) sum.add_(parts.select(2, g));
  return sum;
}

struct Rule : torch::CustomClassHolder {
  DeltaRule numbers;
};

class GatedDeltaRule : public torch::autograd::Function<GatedDeltaRule> {
 public:
  static variable_list forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k,
                               const at::Tensor& v, const std::optional<at::Tensor>& gate,
                               const std::optional<at::Tensor>& beta, const std::optional<at::Tensor>& state,
                               const c10::intrusive_ptr<Rule>& rule) {
    const DeltaTensors x{
        q, k, v, gate.value_or(at::Tensor()), beta.value_or(at::Tensor()), state.value_or(at::Tensor())};
    context->save_for_backward({x.q, x.k, x.v, x.gate, x.beta, x.state});
    context->saved_data["rule"] = c10::IValue::make_capsule(rule);
    context->set_materialize_grads(false);
    auto [output, last] = compute(rule->numbers, x);
    return {output, last};
  }

  static variable_list backward(AutogradContext* context, const variable_list& incoming) {
    const auto saved = context->get_saved_variables();
    const auto rule = c10::static_intrusive_pointer_cast<Rule>(context->saved_data["rule"].toCapsule());
    const DeltaTensors x{saved[0], saved[1], saved[2], saved[3], saved[4], saved[5]};
    DeltaGradients found;
    if (incoming[0].defined() || incoming[1].defined())
      found = at::GradMode::is_enabled()
                  ? reference::delta_rule_gradients(rule->numbers, x, needed(context, x),
                                                    {incoming[0], incoming[1]}, /*create_graph=*/true)
                  : delta_rule_gradients(rule->numbers, x, {incoming[0], incoming[1]});
    variable_list result(found.begin(), found.end());
    result.emplace_back();  // of `rule`
    return result;
  }

 private:
  static std::array<bool, 6> needed(AutogradContext* context, const DeltaTensors& x) {
    const auto all = all_of(x);
    std::array<bool, 6> result{};
    for (size_t n = 0, input = 0; n < all.size(); ++n)
      result[n] = all[n]->defined() && context->needs_input_grad(input++);
    return result;
  }
};

}  // namespace

bool computes_delta_rule(const DeltaTensors& tensors) {
  const auto all = all_of(tensors);
  const auto type = tensors.v.scalar_type();
  return tensors.v.is_cpu() && (type == at::kFloat || type == at::kBFloat16 || type == at::kHalf) &&
         std::all_of(all.begin(), all.end(), [](const at::Tensor* x) { return is_not_subclass(*x); });
}

DeltaResult delta_rule(const DeltaRule& rule, const DeltaTensors& x) {
  const auto all = all_of(x);
  const bool differentiable =
      at::GradMode::is_enabled() && std::any_of(all.begin(), all.end(), [](const at::Tensor* some) {
        return some->defined() && some->requires_grad();
      });
  if (!differentiable) return compute(rule, x);
  auto kept = c10::make_intrusive<Rule>();
  kept->numbers = rule;
  const auto results = GatedDeltaRule::apply(x.q, x.k, x.v, as_optional(x.gate), as_optional(x.beta),
                                             as_optional(x.state), kept);
  return {results[0], results[1]};
}

DeltaGradients delta_rule_gradients(const DeltaRule& rule, const DeltaTensors& given,
                                    const DeltaResult& incoming) {
  const auto x = readable(given);
  const auto wide = x.v.options().dtype(at::kFloat);
  const std::array of_keys{x.v.size(0), x.v.size(1), x.v.size(2), x.k.size(3)};
  const auto like = [](const at::Tensor& some) { return some.defined() ? empty_rows_like(some) : some; };
  auto q = advise_huge_pages(at::empty(of_keys, wide)), k = advise_huge_pages(at::empty(of_keys, wide));
  DeltaGradients found{q, k, like(x.v), like(x.gate), like(x.beta), like(x.state)};
  const auto grad_output = incoming.output.defined() ? rows_like(incoming.output, x.v) : incoming.output;
  const auto grad_state =
      incoming.state.defined() ? incoming.state.contiguous().resolve_neg() : incoming.state;
  cpu::for_numbers(x.v.scalar_type(), [&](auto number) {
    using T = decltype(number);
    cpu::delta_backward<T>(call_of<T>(rule, x),
                           {.output = view<const T>(grad_output),
                            .state = grad_state.defined() ? grad_state.const_data_ptr<float>() : nullptr,
                            .q = view<float>(q),
                            .k = view<float>(k),
                            .v = view<T>(found[2]),
                            .gate = view<float>(found[3]),
                            .beta = view<float>(found[4]),
                            .grad_state = found[5].defined() ? found[5].mutable_data_ptr<float>() : nullptr});
  });
  for (size_t n = 0; n < 2; ++n) found[n] = sum_of_groups(found[n], x.groups());
  const auto all = all_of(given);
  for (size_t n = 0; n < found.size(); ++n) {
    if (found[n].defined()) found[n] = found[n].to(all[n]->scalar_type());
  }
  return found;
}

at::Tensor delta_rule_in_place(const DeltaRule& rule, const DeltaTensors& x) {
  return compute(rule, x, x.state);
}

}  // namespace attentive::kernels::native_cpu
