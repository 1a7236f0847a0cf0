#include "kernels/delta_rule.h"

#include <algorithm>
#include <array>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include "core/autocast_modes.h"
#include "core/memory.h"
#include "kernels/problem.h"

namespace attentive::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

bool computes(const DeltaTensors& tensors) {
  const auto all = all_of(tensors);
  return tensors.v.is_cpu() && tensors.v.scalar_type() != at::kDouble &&
         std::all_of(all.begin(), all.end(), [](const at::Tensor* x) { return is_not_subclass(*x); });
}

bool has_rows(const at::Tensor& x) {
  return x.dim() < 4 || x.size(3) <= 1 || x.stride(3) == 1;
}

// Tensors as the kernel reads them: with contiguous rows of numbers, and contiguous as a whole.
at::Tensor rows(const at::Tensor& x, at::ScalarType type) {
  if (!x.defined()) return x;
  const auto same = x.to(type);
  return (has_rows(same) ? same : same.contiguous()).resolve_neg();
}

at::Tensor whole(const at::Tensor& x) {
  return x.defined() ? x.contiguous().resolve_neg() : x;
}

DeltaTensors readable(const DeltaTensors& x) {
  const auto type = x.v.scalar_type();
  return {rows(x.q, type),          rows(x.k, type),          rows(x.v, type),
          rows(x.gate, at::kFloat), rows(x.beta, at::kFloat), whole(x.state)};
}

// A tensor with the strides of x, if its rows are contiguous then.
at::Tensor empty_rows_like(const at::Tensor& x) {
  if (!x.defined()) return x;
  const auto same = at::empty_like(x);
  return advise_huge_pages(has_rows(same) ? same : at::empty(x.sizes(), x.options()));
}

// Computes a call. The last states become `last`, new memory if it is undefined.
DeltaResult compute(const DeltaRule& rule, const DeltaTensors& given, const at::Tensor& last = {}) {
  const auto x = readable(given);
  DeltaResult result{empty_rows_like(x.v), last};
  if (!last.defined())
    result.state = at::empty({rule.sequences(x.v.size(0)), x.v.size(1), x.k.size(3), x.v.size(3)},
                             x.v.options().dtype(at::kFloat));
  cpu::delta_forward(rule, x, result);
  return result;
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
  explicit Rule(DeltaRule rule) : numbers(std::move(rule)) {}
  DeltaRule numbers;
};

class GatedDeltaRule : public torch::autograd::Function<GatedDeltaRule> {
 public:
  static variable_list forward(AutogradContext* context, const at::TensorList& /*inputs*/,
                               const DeltaTensors& x, const c10::intrusive_ptr<Rule>& rule) {
    context->save_for_backward({x.q, x.k, x.v, x.gate, x.beta, x.state});
    context->saved_data["rule"] = c10::IValue::make_capsule(rule);
    context->set_materialize_grads(false);
    const auto [output, last] = compute(rule->numbers, x);
    return {output, last};
  }

  static variable_list backward(AutogradContext* context, const variable_list& incoming) {
    // More gradients than forward() has arguments may be returned if they are undefined.
    if (!incoming[0].defined() && !incoming[1].defined()) return variable_list(8);
    const auto saved = context->get_saved_variables();
    const auto rule = c10::static_intrusive_pointer_cast<Rule>(context->saved_data["rule"].toCapsule());
    const DeltaTensors x{saved[0], saved[1], saved[2], saved[3], saved[4], saved[5]};
    const auto found =
        delta_rule_gradients(rule->numbers, x, {incoming[0], incoming[1]}, at::GradMode::is_enabled());
    variable_list result;
    for (size_t n = 0; n < found.size(); ++n) {
      if (saved[n].defined()) result.push_back(found[n]);
    }
    result.resize(result.size() + 2);  // of the arguments after the inputs
    return result;
  }
};

}  // namespace

DeltaResult delta_rule(const DeltaRule& rule, const DeltaTensors& x) {
  if (!computes(x)) return reference::delta_rule(rule, x);
  if (!requires_gradient(x)) return compute(rule, x);
  const auto results =
      GatedDeltaRule::apply(at::TensorList(defined_of(x)), x, c10::make_intrusive<Rule>(rule));
  return {results[0], results[1]};
}

DeltaGradients delta_rule_gradients(const DeltaRule& rule, const DeltaTensors& given,
                                    const DeltaResult& incoming, bool create_graph) {
  if (create_graph || !computes(given))
    return reference::delta_rule_gradients(rule, given, incoming, create_graph);
  const at::NoGradGuard no_grad;
  const auto x = readable(given);
  const std::array of_keys{x.v.size(0), x.v.size(1), x.v.size(2), x.k.size(3)};
  const auto wide = [&] { return advise_huge_pages(at::empty(of_keys, x.v.options().dtype(at::kFloat))); };
  DeltaGradients found{wide(), wide()};
  const auto read = all_of(x);
  for (size_t n = 2; n < found.size(); ++n) found[n] = empty_rows_like(*read[n]);
  cpu::delta_backward(rule, x, {rows(incoming.output, x.v.scalar_type()), whole(incoming.state)}, found);
  for (size_t n = 0; n < 2; ++n) found[n] = sum_of_groups(found[n], x.groups());
  const auto all = all_of(given);
  for (size_t n = 0; n < found.size(); ++n) {
    if (found[n].defined()) found[n] = found[n].to(all[n]->scalar_type());
  }
  return found;
}

at::Tensor delta_rule_in_place(const DeltaRule& rule, const DeltaTensors& x) {
  if (computes(x) && !x.state.is_neg()) return compute(rule, x, x.state).output;
  const auto [output, last] = reference::delta_rule(rule, x);
  x.state.copy_(last);
  return output;
}

}  // namespace attentive::kernels
