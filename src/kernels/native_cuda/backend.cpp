#include "kernels/native_cuda/backend.h"

#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/matmul.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/function.h>

#include "kernels/groups.h"
#include "kernels/lowering.h"
#include "kernels/native_backward.h"
#include "kernels/reference/visibility.h"

namespace attentive::kernels::native_cuda {
namespace {

// What the row kernels need of a problem.
struct Plan : torch::CustomClassHolder {
  const SoftmaxKernels* kernels = nullptr;
  Numbers numbers;
  Terms terms;               // empty once autograd keeps them
  at::DimVector bias_sizes;  // before it was expanded
  bool clean = false;
};

template <class T>
Strided<T> strided(const at::Tensor& x) {
  Strided<T> result{x.const_data_ptr<T>(), x.stride(0), x.stride(1), 0, 0};
  if (x.dim() == 4) {
    result.i = x.stride(2);
    result.j = x.stride(3);
  }
  return result;
}

bool differentiates(const Problem& p) {
  if (!at::GradMode::is_enabled()) return false;
  for (const auto* x : {&p.q, &p.k, &p.v, &p.bias, &p.sinks}) {
    if (x->defined() && x->requires_grad()) return true;
  }
  return false;
}

SoftmaxCall make_call(const Plan& plan, const Terms& terms) {
  SoftmaxCall call{plan.numbers};
  if (terms.keep.defined()) call.keep = strided<bool>(terms.keep);
  if (terms.bias.defined()) call.bias = strided<float>(terms.bias);
  if (terms.lengths.defined()) call.key_lengths = terms.lengths.const_data_ptr<int64_t>();
  if (terms.slopes.defined()) call.slopes = strided<float>(terms.slopes);
  if (terms.sinks.defined()) call.sinks = terms.sinks.const_data_ptr<float>();
  return call;
}

c10::intrusive_ptr<Plan> make_plan(const SoftmaxKernels& kernels, const Problem& p) {
  auto plan = c10::make_intrusive<Plan>();
  plan->kernels = &kernels;
  auto lowered = lower(p, differentiates(p));
  plan->numbers = lowered.numbers;
  plan->terms = std::move(lowered.terms);
  plan->clean = p.weights == Weights::Clean;
  if (p.bias.defined()) plan->bias_sizes = p.bias.sizes();
  return plan;
}

at::Tensor contiguous(const at::Tensor& x) {
  return x.defined() ? x.resolve_neg().contiguous() : x;
}

// A custom function takes no undefined tensor.
std::optional<at::Tensor> given(const at::Tensor& x) {
  return x.defined() ? std::optional(x) : std::nullopt;
}

// Scores -> weights after dropout, logsumexp, and the clean weights where they are asked for. Bias and sinks
// are named for their gradients; their numbers are in the plan.
class MaskedSoftmax : public torch::autograd::Function<MaskedSoftmax> {
 public:
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context,
                                                const at::Tensor& any_scores,
                                                const std::optional<at::Tensor>& /*bias*/,
                                                const std::optional<at::Tensor>& /*sinks*/,
                                                const c10::intrusive_ptr<Plan>& plan) {
    context->set_materialize_grads(false);  // no zeros in place of weights that got no gradient
    const auto scores = any_scores.contiguous();
    const auto call = make_call(*plan, plan->terms);
    ForwardTensors tensors;
    tensors.scores = scores;
    tensors.dropped = at::empty_like(scores);
    if (plan->clean) tensors.clean = call.dropout ? at::empty_like(scores) : tensors.dropped;
    const auto numbers = scores.options().dtype(at::kFloat);
    tensors.logsumexp = at::empty({call.B, call.H, call.L}, numbers);
    tensors.statistics = at::empty({call.B, call.H, call.L, 2}, numbers);
    auto written = tensors;
    if (!call.dropout) written.clean.reset();
    plan->kernels->forward(call, written);
    torch::autograd::variable_list saved = {scores, tensors.statistics};
    for (auto& term : plan->terms.to_save()) saved.push_back(std::move(term));
    context->save_for_backward(std::move(saved));
    plan->terms = {};
    context->saved_data["plan"] = c10::IValue::make_capsule(plan);
    torch::autograd::variable_list results = {tensors.dropped, tensors.logsumexp};
    if (plan->clean) results.push_back(call.dropout ? tensors.clean : tensors.dropped.clone());
    return results;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    refuse_second_derivative();
    const auto saved = context->get_saved_variables();
    const auto plan = c10::static_intrusive_pointer_cast<Plan>(context->saved_data["plan"].toCapsule());
    const auto terms = Terms::saved(&saved[2]);
    const auto call = make_call(*plan, terms);
    // Inputs are counted without those that are not there.
    const bool wants_bias = terms.bias.defined() && context->needs_input_grad(1);
    const bool wants_sinks = terms.sinks.defined() && context->needs_input_grad(terms.bias.defined() ? 2 : 1);
    BackwardTensors tensors;
    tensors.scores = saved[0];
    tensors.statistics = saved[1];
    tensors.grad_dropped = contiguous(gradients[0]);
    tensors.grad_logsumexp = contiguous(gradients[1]);
    if (gradients.size() > 2) tensors.grad_clean = contiguous(gradients[2]);
    tensors.grad_scores = at::empty_like(saved[0]);
    if (wants_bias) tensors.grad_logits = at::empty_like(saved[0], saved[0].options().dtype(at::kFloat));
    if (wants_sinks) tensors.sink_terms = at::empty({call.B, call.H, call.L}, saved[1].options());
    plan->kernels->backward(call, tensors);

    at::Tensor grad_bias, grad_sinks;
    if (wants_bias) grad_bias = tensors.grad_logits.sum_to_size(plan->bias_sizes);
    if (wants_sinks) grad_sinks = tensors.sink_terms.sum(at::IntArrayRef{0, 2});
    return {tensors.grad_scores, grad_bias, grad_sinks, at::Tensor()};
  }
};

}  // namespace

Verdict verdict(const Problem& problem) {
  if (!device_kernels()) return Verdict::no("this build has no CUDA code (ATTENTIVE_CUDA)");
  const auto type = problem.q.scalar_type();
  if (type != at::kFloat && type != at::kBFloat16 && type != at::kHalf)
    return Verdict::no("it accepts only float32, bfloat16 and float16");
  if (problem.batch() == 0 || problem.heads() == 0 || problem.queries() == 0 || problem.keys() == 0 ||
      problem.value_dim() == 0) {
    return Verdict::no("it does not accept empty inputs");
  }
  if (problem.has_dropout() && problem.dropout_stream == DropoutStream::Aten)
    return Verdict::no("the Aten dropout stream cannot be drawn row by row");
  if (problem.dropout_p == 1.0) return Verdict::no("a dropout of 1 leaves nothing to compute");
  if (problem.alibi_slopes.defined() && problem.alibi_slopes.requires_grad() && at::GradMode::is_enabled())
    return Verdict::no("it computes no gradient for the ALiBi slopes");
  return {};
}

AttentionResult run(const Problem& problem) {
  return run_with(*device_kernels(), problem);
}

AttentionResult run_with(const SoftmaxKernels& kernels, const Problem& problem) {
  const auto plan = make_plan(kernels, problem);
  auto k = problem.k, v = problem.v;
  const auto visible = reference::visible_pairs(problem, {0, problem.queries(), 0, problem.keys()});
  if (visible.defined()) {
    k = without_unseen(k, visible, problem.kv_heads());
    v = without_unseen(v, visible, problem.kv_heads());
  }
  const auto scores = unstack_groups(
      at::matmul(stack_groups(problem.q, problem.kv_heads()), k.transpose(2, 3)), problem.heads());
  auto results = MaskedSoftmax::apply(scores, given(problem.bias), given(problem.sinks), plan);
  AttentionResult result;
  result.output =
      unstack_groups(at::matmul(stack_groups(results[0], problem.kv_heads()), v), problem.heads());
  if (problem.logsumexp) result.logsumexp = results[1];
  if (problem.weights == Weights::Dropped) result.weights = results[0];
  if (problem.weights == Weights::Clean) result.weights = results[2];
  return result;
}

}  // namespace attentive::kernels::native_cuda
