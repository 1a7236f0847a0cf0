#include "kernels/cpu/native.h"

#include <cmath>

#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/function.h>

#include "kernels/cpu/backward.h"
#include "kernels/cpu/forward.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/weights.h"
#include "kernels/dropout_counter.h"
#include "kernels/native_backward.h"

namespace attentive::kernels::cpu {
namespace {

// A problem whose tensors lie as the loops read them. It outlives the forward pass for the backward one.
struct Plan : torch::CustomClassHolder {
  Problem problem;
  at::Tensor keep;  // bool, broadcast to (B, H, L, S)
  at::Tensor bias;  // float, broadcast to (B, H, L, S)
  at::Tensor slopes;
  at::Tensor lengths;
};

at::Tensor with_unit_stride(const at::Tensor& x) {
  return x.stride(-1) == 1 || x.size(-1) == 1 ? x : x.contiguous();
}

c10::intrusive_ptr<Plan> make_plan(const Problem& given) {
  auto plan = c10::make_intrusive<Plan>();
  plan->problem = given;
  Problem& p = plan->problem;
  const std::array<int64_t, 4> pairs = {p.batch(), p.heads(), p.queries(), p.keys()};
  at::Tensor keep = p.keep;
  if (p.key_keep.defined()) {
    const auto keys = p.key_keep.view({p.batch(), 1, 1, p.keys()});
    keep = keep.defined() ? at::bitwise_and(keep, keys) : keys;
  }
  if (keep.defined()) plan->keep = keep.expand(pairs);
  if (p.bias.defined()) plan->bias = p.bias.detach().to(at::kFloat).expand(pairs);
  if (p.alibi_slopes.defined()) {
    plan->slopes = p.alibi_slopes.detach().to(at::kFloat).expand({p.batch(), p.heads()});
  }
  if (p.key_lengths.defined()) plan->lengths = p.key_lengths.contiguous();
  if (p.has_dropout() && !p.dropout_key) p.dropout_key = draw_dropout_key(p.generator);
  return plan;
}

template <class T>
Strided<const T> read(const at::Tensor& x) {
  return {static_cast<const T*>(x.const_data_ptr()), x.stride(0), x.stride(1), x.stride(2),
          x.size(3) == 1 ? 1 : x.stride(3)};
}

template <class T>
Strided<T> write(const at::Tensor& x) {
  return {static_cast<T*>(x.mutable_data_ptr()), x.stride(0), x.stride(1), x.stride(2), 1};
}

Call make_call(const Plan& plan, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
               const at::Tensor& sinks) {
  const Problem& p = plan.problem;
  Call call{};
  call.B = q.size(0);
  call.H = q.size(1);
  call.Hkv = k.size(1);
  call.L = q.size(2);
  call.S = k.size(2);
  call.D = q.size(3);
  call.Dv = v.size(3);
  call.group = call.H / call.Hkv;
  call.shift = call.S - call.L;
  call.is_bf16 = q.scalar_type() == at::kBFloat16;
  call.rule.scale = static_cast<float>(p.scale.value_or(1.0 / std::sqrt(static_cast<double>(call.D))));
  call.rule.softcap = static_cast<float>(p.softcap.value_or(0.0));
  call.causal = p.causal;
  call.window = p.window;
  if (plan.keep.defined()) {
    call.keep = read<bool>(plan.keep);
    call.keep.col = plan.keep.stride(3);
  }
  if (plan.bias.defined()) {
    call.bias = read<float>(plan.bias);
    call.bias.col = plan.bias.stride(3);
  }
  if (plan.lengths.defined()) call.key_lengths = plan.lengths.const_data_ptr<int64_t>();
  if (plan.slopes.defined()) {
    call.slopes = plan.slopes.const_data_ptr<float>();
    call.slope_b = plan.slopes.stride(0);
    call.slope_h = plan.slopes.stride(1);
  }
  if (sinks.defined()) call.sinks = sinks.const_data_ptr<float>();
  if (p.has_dropout()) {
    call.dropout = true;
    call.dropout_key = *p.dropout_key;
    call.threshold = keep_threshold(p.dropout_p);
    call.survivor_scale = static_cast<float>(survivor_scale(p.dropout_p));
    call.batch_offset = p.batch_offset;
  }
  return call;
}

// (B, H, L, D) that lies as (B, L, H, D): merging the heads afterwards is a view.
at::Tensor heads_inside(const at::Tensor& like, int64_t heads, int64_t rows, int64_t dim) {
  return at::empty({like.size(0), rows, heads, dim}, like.options()).transpose(1, 2);
}

// A gradient that lies as its tensor does, where that has no gaps: a leaf keeps it without a copy.
at::Tensor gradient_of(const at::Tensor& x) {
  const auto gradient = at::empty_like(x);
  return gradient.stride(3) == 1 || x.size(3) == 1 ? gradient
                                                   : heads_inside(x, x.size(1), x.size(2), x.size(3));
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
  // Few queries read K and V once, in parts that threads share. From nine rows on the tiles are faster,
  // unless the keys are many or read by several heads.
  const bool few = call.L <= 8 || (call.L <= 16 && (call.group > 1 || call.S > 1024));
  if (few && call.L * call.group <= 64 && !statistics.defined()) {
    forward_few(call, tensors);
  } else {
    forward(call, tensors);
  }
}

struct Computed {
  at::Tensor output, logsumexp;
  at::Tensor statistics;  // (2, B, H, L): maxima and totals
};

Computed compute(const Plan& plan, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                 const at::Tensor& sinks, bool want_logsumexp, bool want_statistics) {
  const auto call = make_call(plan, q, k, v, sinks);
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
  kernels::cpu::weights(
      call, WeightsTensors<T>{read<T>(q), read<T>(k), static_cast<T*>(weights.mutable_data_ptr()), dropped});
}

at::Tensor compute_weights(const Plan& plan, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const at::Tensor& sinks) {
  const auto call = make_call(plan, q, k, v, sinks);
  const auto weights = at::empty({call.B, call.H, call.L, call.S}, q.options());
  const bool dropped = plan.problem.weights == Weights::Dropped;
  call.is_bf16 ? weights_typed<bf16_t>(call, q, k, weights, dropped)
               : weights_typed<float>(call, q, k, weights, dropped);
  return weights;
}

template <class T>
void backward_typed(const Call& call, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const at::Tensor& output, const at::Tensor& statistics, const at::Tensor& grad_output,
                    const at::Tensor& grad_logsumexp, const at::Tensor& grad_q, const at::Tensor& grad_k,
                    const at::Tensor& grad_v, const at::Tensor& sink_terms) {
  BackwardTensors<T> t{};
  t.q = read<T>(q);
  t.k = read<T>(k);
  t.v = read<T>(v);
  t.output = read<T>(output);
  t.grad_output = read<T>(grad_output);
  t.statistics = row_statistics(statistics);
  t.grad_logsumexp = grad_logsumexp.defined() ? grad_logsumexp.const_data_ptr<float>() : nullptr;
  t.grad_q = write<T>(grad_q);
  t.grad_k = write<T>(grad_k);
  t.grad_v = write<T>(grad_v);
  t.sink_terms = sink_terms.defined() ? sink_terms.mutable_data_ptr<float>() : nullptr;
  backward(call, t);
}

class NativeAttention : public torch::autograd::Function<NativeAttention> {
 public:
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context,
                                                const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                const std::optional<at::Tensor>& given_sinks,
                                                const c10::intrusive_ptr<Plan>& plan) {
    const auto sinks = given_sinks.value_or(at::Tensor());
    const auto [output, logsumexp, statistics] =
        compute(*plan, q, k, v, sinks, /*want_logsumexp=*/true, /*want_statistics=*/true);
    context->save_for_backward({q, k, v, sinks, output, statistics});
    context->saved_data["plan"] = c10::IValue::make_capsule(plan);
    return {output, logsumexp};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    refuse_second_derivative();
    const auto saved = context->get_saved_variables();
    const auto &q = saved[0], &k = saved[1], &v = saved[2], &sinks = saved[3], &output = saved[4],
               &statistics = saved[5];
    const auto plan = c10::static_intrusive_pointer_cast<Plan>(context->saved_data["plan"].toCapsule());
    const auto call = make_call(*plan, q, k, v, sinks);
    const auto grad_output = gradients[0].defined()
                                 ? with_unit_stride(gradients[0].to(q.scalar_type()))
                                 : at::zeros({1}, q.options()).expand(output.sizes()).contiguous();
    at::Tensor grad_logsumexp;
    if (gradients[1].defined()) grad_logsumexp = gradients[1].to(at::kFloat).contiguous();

    auto grad_q = gradient_of(q), grad_k = gradient_of(k), grad_v = gradient_of(v);
    at::Tensor sink_terms, grad_sinks;
    if (sinks.defined() && context->needs_input_grad(3))
      sink_terms = at::empty({call.B, call.H, call.L}, q.options().dtype(at::kFloat));
    call.is_bf16 ? backward_typed<bf16_t>(call, q, k, v, output, statistics, grad_output, grad_logsumexp,
                                          grad_q, grad_k, grad_v, sink_terms)
                 : backward_typed<float>(call, q, k, v, output, statistics, grad_output, grad_logsumexp,
                                         grad_q, grad_k, grad_v, sink_terms);
    if (sink_terms.defined()) grad_sinks = sink_terms.sum(at::IntArrayRef{0, 2});
    return {grad_q, grad_k, grad_v, grad_sinks, at::Tensor()};
  }
};

// Whether float32 has room for it, for its inverse and for its products.
bool is_moderate(const std::optional<double>& factor) {
  return !factor || (std::abs(*factor) >= 1e-30 && std::abs(*factor) <= 1e30);
}

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
  if (!is_moderate(problem.scale)) return Verdict::no("it takes a scale between 1e-30 and 1e30");
  if (!is_moderate(problem.softcap)) return Verdict::no("it takes a softcap between 1e-30 and 1e30");
  if (requires_gradient(problem.alibi_slopes)) return Verdict::no("it gives the ALiBi slopes no gradient");
  if (type == at::kFloat && !has_gemm_f32())
    return Verdict::no("oneDNN has no float32 tile product on this CPU");
  if (type == at::kBFloat16 && !has_gemm_bf16())
    return Verdict::no("oneDNN has no bfloat16 tile product on this CPU");
  return {};
}

AttentionResult run(const Problem& problem) {
  const auto plan = make_plan(problem);
  const auto q = with_unit_stride(problem.q), k = with_unit_stride(problem.k),
             v = with_unit_stride(problem.v);
  at::Tensor sinks;
  if (problem.sinks.defined()) sinks = problem.sinks.to(at::kFloat).contiguous();
  // Autograd keeps these; the plan must not keep them alive a second time.
  for (auto* kept : {&plan->problem.q, &plan->problem.k, &plan->problem.v, &plan->problem.sinks})
    kept->reset();
  AttentionResult result;
  at::Tensor logsumexp;
  if (differentiates(problem)) {
    auto outputs =
        NativeAttention::apply(q, k, v, sinks.defined() ? std::optional(sinks) : std::nullopt, plan);
    result.output = outputs[0];
    logsumexp = outputs[1];
  } else {
    const auto computed = compute(*plan, q, k, v, sinks, problem.logsumexp, /*want_statistics=*/false);
    result.output = computed.output;
    logsumexp = computed.logsumexp;
    if (problem.weights != Weights::None) result.weights = compute_weights(*plan, q, k, v, sinks);
  }
  if (problem.logsumexp) result.logsumexp = logsumexp;
  return result;
}

}  // namespace attentive::kernels::cpu
