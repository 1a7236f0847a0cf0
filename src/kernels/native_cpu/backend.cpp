#include "kernels/native_cpu/backend.h"

#include <cmath>
#include <optional>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/function.h>

#include "kernels/attention/backward.h"
#include "kernels/attention/forward.h"
#include "kernels/attention/weights.h"
#include "kernels/gemm/gemm.h"
#include "kernels/native_cpu/plan.h"

namespace attentive::kernels::native_cpu {
namespace {

using namespace cpu;

// Few queries read K and V once, in parts that threads share. From nine rows on the tiles are faster, unless
// the keys are many or read by several heads.
bool has_few_queries(const Call& call) {
  const bool few = call.L <= 8 || (call.L <= 16 && (call.group > 1 || call.S > 1024));
  return few && call.L * call.group <= 64;
}

RowStatistics row_statistics(const at::Tensor& x) {
  if (!x.defined()) return {};
  auto* maxima = x.mutable_data_ptr<float>();
  return {maxima, maxima + x.stride(0)};
}

template <class T>
void forward_typed(const Call& call, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                   const at::Tensor& output, const at::Tensor& logsumexp, const at::Tensor& statistics) {
  const ForwardTensors<T> tensors{read<T>(q),
                                  read<T>(k),
                                  read<T>(v),
                                  write<T>(output),
                                  logsumexp.defined() ? logsumexp.mutable_data_ptr<float>() : nullptr,
                                  row_statistics(statistics)};
  if (has_few_queries(call) && !statistics.defined()) {
    forward_few(call, tensors);
  } else {
    forward(call, tensors);
  }
}

struct Computed {
  at::Tensor output, logsumexp;
  at::Tensor statistics;  // (2, B, H, L): maxima and totals
};

Computed compute(const Call& call, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                 bool want_logsumexp, bool want_statistics) {
  auto output = heads_inside(q, call.H, call.L, call.Dv);
  at::Tensor logsumexp, statistics;
  if (want_logsumexp) logsumexp = at::empty({call.B, call.H, call.L}, q.options().dtype(at::kFloat));
  if (want_statistics) statistics = at::empty({2, call.B, call.H, call.L}, q.options().dtype(at::kFloat));
  call.is_bf16 ? forward_typed<bf16_t>(call, q, k, v, output, logsumexp, statistics)
               : forward_typed<float>(call, q, k, v, output, logsumexp, statistics);
  return {output, logsumexp, statistics};
}

template <class T>
void weights_typed(const Call& call, const at::Tensor& q, const at::Tensor& k, const at::Tensor& weights,
                   bool dropped) {
  cpu::weights(
      call, WeightsTensors<T>{read<T>(q), read<T>(k), static_cast<T*>(weights.mutable_data_ptr()), dropped});
}

at::Tensor compute_weights(Call call, const at::Tensor& q, const at::Tensor& k, bool dropped) {
  if (call.is_bf16 && !has_gemm_bf16()) {
    call.is_bf16 = false;
    return compute_weights(call, q.to(at::kFloat), k.to(at::kFloat), dropped).to(at::kBFloat16);
  }
  const auto weights = at::empty({call.B, call.H, call.L, call.S}, q.options());
  call.is_bf16 ? weights_typed<bf16_t>(call, q, k, weights, dropped)
               : weights_typed<float>(call, q, k, weights, dropped);
  return weights;
}

struct Gradients {
  at::Tensor q, k, v;
  at::Tensor sink_terms;  // (B, H, L), or undefined: not wanted
};

template <class T>
void backward_typed(const Call& call, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const at::Tensor& output, const at::Tensor& statistics, const at::Tensor& grad_output,
                    const at::Tensor& grad_logsumexp, const Gradients& gradients) {
  BackwardTensors<T> t{};
  t.q = read<T>(q);
  t.k = read<T>(k);
  t.v = read<T>(v);
  t.output = read<T>(output);
  t.grad_output = read<T>(grad_output);
  t.statistics = row_statistics(statistics);
  t.grad_logsumexp = grad_logsumexp.defined() ? grad_logsumexp.const_data_ptr<float>() : nullptr;
  t.grad_q = write<T>(gradients.q);
  t.grad_k = write<T>(gradients.k);
  t.grad_v = write<T>(gradients.v);
  t.sink_terms = gradients.sink_terms.defined() ? gradients.sink_terms.mutable_data_ptr<float>() : nullptr;
  backward(call, t);
}

Gradients compute_gradients(const Call& call, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const at::Tensor& output, const at::Tensor& statistics,
                            const at::Tensor& grad_output, const at::Tensor& grad_logsumexp,
                            bool want_sink_terms) {
  Gradients result{gradient_of(q), gradient_of(k), gradient_of(v), {}};
  if (want_sink_terms) result.sink_terms = at::empty({call.B, call.H, call.L}, q.options().dtype(at::kFloat));
  const auto typed = call.is_bf16 ? backward_typed<bf16_t> : backward_typed<float>;
  typed(call, q, k, v, output, statistics, grad_output, grad_logsumexp, result);
  return result;
}

class NativeAttention : public torch::autograd::Function<NativeAttention> {
 public:
  // The sinks are named for their gradient; their numbers are in the plan.
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context,
                                                const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                const std::optional<at::Tensor>& /*sinks*/,
                                                const c10::intrusive_ptr<Plan>& plan) {
    const auto call = make_call(plan->numbers, plan->terms, q.scalar_type());
    const auto [output, logsumexp, statistics] =
        compute(call, q, k, v, /*want_logsumexp=*/true, /*want_statistics=*/true);
    plan->changes.watch(output);
    torch::autograd::variable_list saved = {q, k, v, output.variable_data(), statistics};
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
    const auto &q = saved[0], &k = saved[1], &v = saved[2], &statistics = saved[4];
    const auto terms = Terms::saved(&saved[5]);
    const auto plan = c10::static_intrusive_pointer_cast<Plan>(context->saved_data["plan"].toCapsule());
    const auto call = make_call(plan->numbers, terms, q.scalar_type());
    auto output = saved[3];
    if (plan->changes.any())
      output = compute(call, q, k, v, /*want_logsumexp=*/false, /*want_statistics=*/true).output;
    const auto grad_output = gradients[0].defined()
                                 ? with_unit_stride(gradients[0].to(q.scalar_type()).resolve_neg())
                                 : at::zeros({1}, q.options()).expand(output.sizes()).contiguous();
    at::Tensor grad_logsumexp;
    if (gradients[1].defined()) grad_logsumexp = gradients[1].to(at::kFloat).resolve_neg().contiguous();
    const auto result = compute_gradients(call, q, k, v, output, statistics, grad_output, grad_logsumexp,
                                          terms.sinks.defined() && context->needs_input_grad(3));
    const auto grad_sinks =
        result.sink_terms.defined() ? result.sink_terms.sum(at::IntArrayRef{0, 2}) : at::Tensor();
    return {result.q, result.k, result.v, grad_sinks, at::Tensor()};
  }
};

bool requires_gradient(const at::Tensor& x) {
  return x.defined() && x.requires_grad() && at::GradMode::is_enabled();
}

bool differentiates(const Problem& problem) {
  return requires_gradient(problem.q) || requires_gradient(problem.k) || requires_gradient(problem.v) ||
         requires_gradient(problem.sinks);
}

// Whether float32 has room for it, for its inverse and for its products.
bool is_moderate(const std::optional<double>& factor) {
  return !factor || (std::abs(*factor) >= 1e-30 && std::abs(*factor) <= 1e30);
}

}  // namespace

Verdict verdict(const Problem& problem) {
  if (!problem.q.is_cpu()) return Verdict::no("it runs only on the CPU");
  const auto type = problem.q.scalar_type();
  if (type != at::kFloat && type != at::kBFloat16) return Verdict::no("it accepts only float32 and bfloat16");
  if (problem.batch() == 0 || problem.heads() == 0 || problem.queries() == 0 || problem.keys() == 0 ||
      problem.value_dim() == 0) {
    return Verdict::no("it does not accept empty inputs");
  }
  if (problem.has_dropout() && problem.dropout_stream == DropoutStream::Aten) {
    return Verdict::no("the Aten dropout stream cannot be drawn tile by tile");
  }
  if (problem.dropout_p == 1.0) return Verdict::no("a dropout of 1 leaves nothing to compute");
  if (problem.weights != Weights::None && differentiates(problem)) {
    return Verdict::no("it computes no gradient for the weights");
  }
  if (requires_gradient(problem.bias)) return Verdict::no("it computes no gradient for the bias");
  if (!is_moderate(problem.scale)) return Verdict::no("it needs a scale between 1e-30 and 1e30");
  if (!is_moderate(problem.softcap)) return Verdict::no("it needs a softcap between 1e-30 and 1e30");
  if (requires_gradient(problem.alibi_slopes))
    return Verdict::no("it computes no gradient for the ALiBi slopes");
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
    const auto call = make_call(plan->numbers, plan->terms, q.scalar_type());
    const auto computed = compute(call, q, k, v, problem.logsumexp, /*want_statistics=*/false);
    result.output = computed.output;
    logsumexp = computed.logsumexp;
    if (problem.weights != Weights::None)
      result.weights = compute_weights(call, q, k, problem.weights == Weights::Dropped);
  }
  if (problem.logsumexp) result.logsumexp = logsumexp;
  return result;
}

}  // namespace attentive::kernels::native_cpu
