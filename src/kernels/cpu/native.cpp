#include "kernels/cpu/native.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/function.h>

#include "kernels/cpu/backward.h"
#include "kernels/cpu/forward.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/plan.h"
#include "kernels/cpu/weights.h"
#include "kernels/reference/visibility.h"

namespace attentive::kernels::cpu {
namespace {

template <class T>
void forward_typed(const Call& call, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                   const at::Tensor& output, const at::Tensor& logsumexp) {
  const ForwardTensors<T> tensors{read<T>(q), read<T>(k), read<T>(v), write<T>(output),
                                  logsumexp.defined() ? logsumexp.mutable_data_ptr<float>() : nullptr};
  // Few queries read K and V once, in parts that threads share. From nine rows on the tiles are faster,
  // unless the keys are many or read by several heads.
  const bool few = call.L <= 8 || (call.L <= 16 && (call.group > 1 || call.S > 1024));
  if (few && call.L * call.group <= 64) {
    forward_few(call, tensors);
  } else {
    forward(call, tensors);
  }
}

std::pair<at::Tensor, at::Tensor> compute(const Call& call, const at::Tensor& q, const at::Tensor& k,
                                          const at::Tensor& v, bool want_logsumexp) {
  auto output = heads_inside(q, call.H, call.L, call.Dv);
  at::Tensor logsumexp;
  if (want_logsumexp) logsumexp = at::empty({call.B, call.H, call.L}, q.options().dtype(at::kFloat));
  call.is_bf16 ? forward_typed<bf16_t>(call, q, k, v, output, logsumexp)
               : forward_typed<float>(call, q, k, v, output, logsumexp);
  return {output, logsumexp};
}

template <class T>
void weights_typed(const Call& call, const at::Tensor& q, const at::Tensor& k, const at::Tensor& logsumexp,
                   const at::Tensor& weights, bool dropped) {
  kernels::cpu::weights(call, WeightsTensors<T>{read<T>(q), read<T>(k), logsumexp.const_data_ptr<float>(),
                                                static_cast<T*>(weights.mutable_data_ptr()), dropped});
}

at::Tensor compute_weights(const Call& call, const at::Tensor& q, const at::Tensor& k,
                           const at::Tensor& logsumexp, bool dropped) {
  const auto weights = at::empty({call.B, call.H, call.L, call.S}, q.options());
  call.is_bf16 ? weights_typed<bf16_t>(call, q, k, logsumexp, weights, dropped)
               : weights_typed<float>(call, q, k, logsumexp, weights, dropped);
  return weights;
}

template <class T>
void backward_typed(const Call& call, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const at::Tensor& output, const at::Tensor& logsumexp, const at::Tensor& grad_output,
                    const at::Tensor& grad_logsumexp, const at::Tensor& grad_q, const at::Tensor& grad_k,
                    const at::Tensor& grad_v, const at::Tensor& delta) {
  BackwardTensors<T> t{};
  t.q = read<T>(q);
  t.k = read<T>(k);
  t.v = read<T>(v);
  t.output = read<T>(output);
  t.grad_output = read<T>(grad_output);
  t.logsumexp = logsumexp.const_data_ptr<float>();
  t.grad_logsumexp = grad_logsumexp.defined() ? grad_logsumexp.const_data_ptr<float>() : nullptr;
  t.grad_q = write<T>(grad_q);
  t.grad_k = write<T>(grad_k);
  t.grad_v = write<T>(grad_v);
  t.delta = delta.mutable_data_ptr<float>();
  backward(call, t);
}

class NativeAttention : public torch::autograd::Function<NativeAttention> {
 public:
  // The sinks are named for their gradient; their numbers are in the plan.
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context,
                                                const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                const std::optional<at::Tensor>& /*sinks*/,
                                                const c10::intrusive_ptr<Plan>& plan) {
    const auto call = make_call(plan->numbers, plan->terms, q, k, v);
    const auto [output, logsumexp] = compute(call, q, k, v, /*want_logsumexp=*/true);
    plan->changes.watch(output);
    plan->changes.watch(logsumexp);
    torch::autograd::variable_list saved = {q, k, v, output.variable_data(), logsumexp.variable_data()};
    for (auto& term : plan->terms.to_save()) saved.push_back(std::move(term));
    context->save_for_backward(std::move(saved));
    plan->terms = {};
    context->saved_data["plan"] = c10::IValue::make_capsule(plan);
    return {output, logsumexp};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    refuse_second_derivative();
    const auto saved = context->get_saved_variables();
    const auto &q = saved[0], &k = saved[1], &v = saved[2];
    const auto terms = Terms::saved(&saved[5]);
    const auto plan = c10::static_intrusive_pointer_cast<Plan>(context->saved_data["plan"].toCapsule());
    const auto call = make_call(plan->numbers, terms, q, k, v);
    auto [output, logsumexp] = std::pair(saved[3], saved[4]);
    if (plan->changes.any()) std::tie(output, logsumexp) = compute(call, q, k, v, /*want_logsumexp=*/true);
    const auto grad_output = gradients[0].defined()
                                 ? with_unit_stride(gradients[0].to(q.scalar_type()).resolve_neg())
                                 : at::zeros({1}, q.options()).expand(output.sizes()).contiguous();
    at::Tensor grad_logsumexp;
    if (gradients[1].defined()) grad_logsumexp = gradients[1].to(at::kFloat).resolve_neg().contiguous();

    auto grad_q = gradient_of(q), grad_k = gradient_of(k), grad_v = gradient_of(v);
    auto delta = at::empty({call.B, call.H, call.L}, q.options().dtype(at::kFloat));
    call.is_bf16 ? backward_typed<bf16_t>(call, q, k, v, output, logsumexp, grad_output, grad_logsumexp,
                                          grad_q, grad_k, grad_v, delta)
                 : backward_typed<float>(call, q, k, v, output, logsumexp, grad_output, grad_logsumexp,
                                         grad_q, grad_k, grad_v, delta);
    at::Tensor grad_sinks;
    if (terms.sinks.defined() && context->needs_input_grad(3))
      grad_sinks = sink_gradient(terms.sinks, logsumexp, delta);
    return {grad_q, grad_k, grad_v, grad_sinks, at::Tensor()};
  }
};

bool requires_gradient(const at::Tensor& x) {
  return x.defined() && x.requires_grad() && at::GradMode::is_enabled();
}

bool differentiates(const Problem& problem) {
  return requires_gradient(problem.q) || requires_gradient(problem.k) || requires_gradient(problem.v) ||
         requires_gradient(problem.sinks);
}

}  // namespace

Verdict verdict(const Problem& problem) {
  if (!problem.q.is_cpu()) return Verdict::no("it runs on the CPU");
  const auto type = problem.q.scalar_type();
  if (type != at::kFloat && type != at::kBFloat16) return Verdict::no("it takes float32 and bfloat16");
  if (problem.batch() == 0 || problem.heads() == 0 || problem.queries() == 0 || problem.keys() == 0 ||
      problem.value_dim() == 0) {
    return Verdict::no("it takes no empty input");
  }
  if (problem.has_dropout() && problem.dropout_stream == DropoutStream::Aten) {
    return Verdict::no("the Aten dropout stream cannot be drawn tile by tile");
  }
  if (problem.dropout_p == 1.0) return Verdict::no("a dropout of 1 leaves nothing to compute");
  if (problem.weights != Weights::None && differentiates(problem)) {
    return Verdict::no("it gives the weights that were asked for no gradient");
  }
  if (requires_gradient(problem.bias)) return Verdict::no("it gives the bias no gradient");
  // In base 2 float32's lowest number is -inf, and would hide its key; so without a gradient as well.
  if (reference::has_huge_negative_rows(problem))
    return Verdict::no(std::string(reference::kHugeNegativeRows));
  if (requires_gradient(problem.alibi_slopes)) return Verdict::no("it gives the ALiBi slopes no gradient");
  if (type == at::kFloat && !has_gemm_f32())
    return Verdict::no("oneDNN has no float32 tile product on this CPU");
  if (type == at::kBFloat16 && !has_gemm_bf16())
    return Verdict::no("oneDNN has no bfloat16 tile product on this CPU");
  return {};
}

AttentionResult run(const Problem& problem) {
  const bool differentiated = differentiates(problem);
  const auto plan = make_plan(problem, differentiated);
  const auto q = with_unit_stride(problem.q), k = with_unit_stride(problem.k),
             v = with_unit_stride(problem.v);
  AttentionResult result;
  at::Tensor logsumexp;
  if (differentiated) {
    const auto sinks = problem.sinks.defined() ? std::optional(problem.sinks) : std::nullopt;
    auto outputs = NativeAttention::apply(q, k, v, sinks, plan);
    result.output = outputs[0];
    logsumexp = outputs[1];
  } else {
    const auto call = make_call(plan->numbers, plan->terms, q, k, v);
    const bool weights = problem.weights != Weights::None;
    std::tie(result.output, logsumexp) = compute(call, q, k, v, problem.logsumexp || weights);
    if (weights) result.weights = compute_weights(call, q, k, logsumexp, problem.weights == Weights::Dropped);
  }
  if (problem.logsumexp) result.logsumexp = logsumexp;
  return result;
}

}  // namespace attentive::kernels::cpu
