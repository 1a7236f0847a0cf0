#include "kernels/native_cpu/backend.h"

#include <cmath>
#include <numeric>
#include <optional>

#include <ATen/core/ivalue.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/function.h>

#include "core/check.h"
#include "kernels/arguments_of_problem.h"
#include "kernels/attention/passes.h"
#include "kernels/native_backward.h"
#include "kernels/reference/gradients.h"

namespace attentive::kernels::native_cpu {
namespace {

using cpu::bf16_t;
using cpu::CpuArguments;
using cpu::f16_t;

// State that the forward pass keeps for the backward pass.
struct SavedForBackward : torch::CustomClassHolder {
  Arguments arguments;   // its masks move to autograd in the forward pass
  Problem options;       // without tensors
  VersionWatch changes;  // detects changes of the output
};

CpuArguments make_call(const Scalars& scalars, const MaskTensors& masks, at::ScalarType type) {
  return {kernel_arguments(scalars, masks), scalars.H / scalars.Hkv, element_of(type)};
}

template <class T>
Strided<const T> read(const at::Tensor& x) {
  return {static_cast<const T*>(x.const_data_ptr()), x.stride(0), x.stride(1), x.stride(2)};
}

template <class T>
Strided<T> write(const at::Tensor& x) {
  return {static_cast<T*>(x.mutable_data_ptr()), x.stride(0), x.stride(1), x.stride(2)};
}

// Makes the rows of q, k, v or an incoming gradient contiguous, as read() requires.
at::Tensor with_unit_stride(const at::Tensor& x) {
  return x.stride(-1) == 1 || x.size(-1) == 1 ? x : x.contiguous();
}

// Allocates (B, H, L, D) in the memory layout (B, L, H, D), so that merging the heads afterwards is a view.
// The tensor is not itself a view, because autograd would forbid changing a view in place.
at::Tensor heads_inside(const at::Tensor& like, int64_t heads, int64_t rows, int64_t dim) {
  return at::empty_strided({like.size(0), heads, rows, dim}, {rows * heads * dim, dim, heads * dim, 1},
                           like.options());
}

// Allocates a gradient with the strides of its tensor if that has no gaps, so that a leaf can keep it without
// a copy.
at::Tensor gradient_of(const at::Tensor& x) {
  const auto gradient = at::empty_like(x);
  return gradient.stride(3) == 1 || x.size(3) == 1 ? gradient
                                                   : heads_inside(x, x.size(1), x.size(2), x.size(3));
}

// Calls work(T{}) for the element type of the call's tensors.
template <class Work>
void for_type(const CpuArguments& call, const Work& work) {
  switch (call.element) {
    case Element::Float32:
      return work(float{});
    case Element::BFloat16:
      return work(bf16_t{});
    case Element::Float16:
      return work(f16_t{});
  }
}

// Whether the pass for few queries is faster, which reads K and V once, in parts that threads share. From
// nine queries on, the tiled pass is faster unless there are many keys or several query heads share them.
bool has_few_queries(const CpuArguments& call) {
  const bool few = call.L <= 8 || (call.L <= 16 && (call.group > 1 || call.S > 1024));
  return few && call.L * call.group <= 64;
}

cpu::RowStatistics row_statistics(const at::Tensor& x) {
  if (!x.defined()) return {};
  auto* maxima = x.mutable_data_ptr<float>();
  return {maxima, maxima + x.stride(0)};
}

float* optional_data(const at::Tensor& x) {
  return x.defined() ? x.mutable_data_ptr<float>() : nullptr;
}

struct Inputs {
  at::Tensor q, k, v;
};

struct Computed {
  at::Tensor output, logsumexp;
  at::Tensor statistics;  // (2, B, H, L): maxima and totals
};

Computed compute(const CpuArguments& call, const Inputs& in, bool want_logsumexp, bool want_statistics) {
  const auto floats = in.q.options().dtype(at::kFloat);
  Computed out{heads_inside(in.q, call.H, call.L, call.Dv), {}, {}};
  if (want_logsumexp) out.logsumexp = at::empty({call.B, call.H, call.L}, floats);
  if (want_statistics) out.statistics = at::empty({2, call.B, call.H, call.L}, floats);
  for_type(call, [&](auto number) {
    using T = decltype(number);
    const cpu::ForwardTensors<T> tensors{read<T>(in.q),
                                         read<T>(in.k),
                                         read<T>(in.v),
                                         write<T>(out.output),
                                         optional_data(out.logsumexp),
                                         row_statistics(out.statistics)};
    const bool few = has_few_queries(call) && !out.statistics.defined();
    few ? cpu::few_queries(call, tensors) : cpu::forward(call, tensors);
  });
  return out;
}

at::Tensor compute_weights(const CpuArguments& call, const Inputs& in, bool dropped) {
  const auto weights = at::empty({call.B, call.H, call.L, call.S}, in.q.options());
  for_type(call, [&](auto number) {
    using T = decltype(number);
    auto* const out = static_cast<T*>(weights.mutable_data_ptr());
    cpu::weights(call, cpu::WeightsTensors<T>{read<T>(in.q), read<T>(in.k), out, dropped});
  });
  return weights;
}

// The incoming gradients of the results; that of the logsumexp may be undefined.
struct Incoming {
  at::Tensor output, logsumexp;
};

struct Gradients {
  at::Tensor q, k, v;
  at::Tensor sink_terms;  // (B, H, L); undefined if not wanted
};

Gradients compute_gradients(const CpuArguments& call, const Inputs& in, const Computed& out,
                            const Incoming& incoming, bool want_sink_terms) {
  Gradients result{gradient_of(in.q), gradient_of(in.k), gradient_of(in.v), {}};
  if (want_sink_terms)
    result.sink_terms = at::empty({call.B, call.H, call.L}, in.q.options().dtype(at::kFloat));
  for_type(call, [&](auto number) {
    using T = decltype(number);
    cpu::backward(call,
                  cpu::BackwardTensors<T>{.q = read<T>(in.q),
                                          .k = read<T>(in.k),
                                          .v = read<T>(in.v),
                                          .output = read<T>(out.output),
                                          .grad_output = read<T>(incoming.output),
                                          .statistics = row_statistics(out.statistics),
                                          .grad_logsumexp = incoming.logsumexp.defined()
                                                                ? incoming.logsumexp.const_data_ptr<float>()
                                                                : nullptr,
                                          .grad_q = write<T>(result.q),
                                          .grad_k = write<T>(result.k),
                                          .grad_v = write<T>(result.v),
                                          .sink_terms = optional_data(result.sink_terms)});
  });
  return result;
}

// Sums (B, H, L) to (H) in a fixed order. LibTorch's sum over two dimensions would take a head's terms in an
// order that depends on the other heads and on the number of threads.
at::Tensor sum_by_head(const at::Tensor& terms) {
  const int64_t batch = terms.size(0), heads = terms.size(1), rows = terms.size(2);
  const auto sums = at::empty({heads}, terms.options());
  const auto* const term = terms.const_data_ptr<float>();
  auto* const sum = sums.mutable_data_ptr<float>();
  for (int64_t h = 0; h < heads; ++h) {
    double total = 0;
    for (int64_t b = 0; b < batch; ++b) {
      const auto* const row = term + (b * heads + h) * rows;
      total = std::accumulate(row, row + rows, total);
    }
    sum[h] = static_cast<float>(total);
  }
  return sums;
}

class NativeAttention : public torch::autograd::Function<NativeAttention> {
 public:
  // `sinks` is an input so that autograd computes its gradient; the kernel reads its numbers from
  // kept->arguments.
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context,
                                                const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                const std::optional<at::Tensor>& sinks,
                                                const c10::intrusive_ptr<SavedForBackward>& kept) {
    const auto call = make_call(kept->arguments.scalars, kept->arguments.masks, q.scalar_type());
    const auto [output, logsumexp, statistics] =
        compute(call, {q, k, v}, /*want_logsumexp=*/true, /*want_statistics=*/true);
    kept->changes.watch(output);
    context->save_for_backward(kept->arguments.with_masks({q, k, v, output.variable_data(), statistics}));
    context->saved_data["kept"] = c10::IValue::make_capsule(kept);
    context->saved_data["sinks"] = sinks;  // for their place in the graph, even if their numbers change
    return {output, logsumexp};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    return at::GradMode::is_enabled() ? gradients_with_graph(context, saved, gradients)
                                      : gradients_of(context, saved, gradients);
  }

 private:
  static c10::intrusive_ptr<SavedForBackward> kept_in(torch::autograd::AutogradContext* context) {
    return c10::static_intrusive_pointer_cast<SavedForBackward>(context->saved_data["kept"].toCapsule());
  }

  // Under create_graph: the kernel records no graph, so the definition computes these gradients.
  static torch::autograd::variable_list gradients_with_graph(
      torch::autograd::AutogradContext* context, const torch::autograd::variable_list& saved,
      const torch::autograd::variable_list& gradients) {
    const auto masks = MaskTensors::saved(&saved[5]);
    Problem problem = kept_in(context)->options;
    problem.q = saved[0];
    problem.k = saved[1];
    problem.v = saved[2];
    problem.keep = masks.keep;
    problem.bias = masks.bias;
    problem.alibi_slopes = masks.slopes;
    problem.key_lengths = masks.lengths;
    const auto sinks = context->saved_data["sinks"].toOptional<at::Tensor>().value_or(at::Tensor());
    problem.sinks = requires_gradient(sinks) ? sinks : masks.sinks;
    if (problem.sinks.defined()) {
      TORCH_CHECK(
          problem.sinks.detach().to(at::kFloat).allclose(masks.sinks, 0, 0, /*equal_nan=*/true),
          "attention: sinks were changed in place after the forward pass; under create_graph, the backward "
          "pass reads them again");
    }
    const auto [q, k, v, grad_sinks] = reference::gradients_with_graph(problem, gradients[0], gradients[1]);
    return {q, k, v, grad_sinks, at::Tensor()};
  }

  static torch::autograd::variable_list gradients_of(torch::autograd::AutogradContext* context,
                                                     const torch::autograd::variable_list& saved,
                                                     const torch::autograd::variable_list& gradients) {
    const Inputs in{saved[0], saved[1], saved[2]};
    Computed out{saved[3], {}, saved[4]};
    const auto masks = MaskTensors::saved(&saved[5]);
    const auto kept = kept_in(context);
    const auto call = make_call(kept->arguments.scalars, masks, in.q.scalar_type());
    if (kept->changes.any())
      out.output = compute(call, in, /*want_logsumexp=*/false, /*want_statistics=*/true).output;
    Incoming incoming;
    incoming.output = gradients[0].defined()
                          ? with_unit_stride(gradients[0].to(in.q.scalar_type()).resolve_neg())
                          : at::zeros({1}, in.q.options()).expand(out.output.sizes()).contiguous();
    if (gradients[1].defined()) incoming.logsumexp = gradients[1].to(at::kFloat).resolve_neg().contiguous();
    const bool want_sinks = masks.sinks.defined() && context->needs_input_grad(3);
    const auto result = compute_gradients(call, in, out, incoming, want_sinks);
    const auto grad_sinks = result.sink_terms.defined() ? sum_by_head(result.sink_terms) : at::Tensor();
    return {result.q, result.k, result.v, grad_sinks, at::Tensor()};
  }
};

bool differentiates(const Problem& problem) {
  return requires_gradient(problem.q) || requires_gradient(problem.k) || requires_gradient(problem.v) ||
         requires_gradient(problem.sinks);
}

// Whether float32 can represent the factor, its inverse and products with it.
bool is_moderate(const std::optional<double>& factor) {
  return !factor || (std::abs(*factor) >= 1e-30 && std::abs(*factor) <= 1e30);
}

}  // namespace

Verdict verdict(const Problem& problem) {
  if (!problem.q.is_cpu()) return Verdict::no("it runs only on the CPU");
  const auto type = problem.q.scalar_type();
  if (type != at::kFloat && type != at::kBFloat16 && type != at::kHalf)
    return Verdict::no("it accepts only float32, bfloat16 and float16");
  if (problem.is_empty()) return Verdict::no("it does not accept empty inputs");
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
  const auto kept = c10::make_intrusive<SavedForBackward>();
  kept->options = without_tensors(problem);
  kept->options.dropout_key = dropout_key_of(problem);
  kept->arguments = arguments_of(problem, *kept->options.dropout_key, differentiated);
  const auto q = with_unit_stride(problem.q), k = with_unit_stride(problem.k),
             v = with_unit_stride(problem.v);
  AttentionResult result;
  at::Tensor logsumexp;
  if (differentiated) {
    const auto sinks = as_optional(problem.sinks);
    auto outputs = NativeAttention::apply(q, k, v, sinks, kept);
    result.output = outputs[0];
    logsumexp = outputs[1];
  } else {
    const auto call = make_call(kept->arguments.scalars, kept->arguments.masks, q.scalar_type());
    const auto computed = compute(call, {q, k, v}, problem.logsumexp, /*want_statistics=*/false);
    result.output = computed.output;
    logsumexp = computed.logsumexp;
    if (problem.weights != Weights::None)
      result.weights = compute_weights(call, {q, k, v}, problem.weights == Weights::Dropped);
  }
  if (problem.logsumexp) result.logsumexp = logsumexp;
  return result;
}

}  // namespace attentive::kernels::native_cpu
