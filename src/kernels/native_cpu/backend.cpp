#include "kernels/native_cpu/backend.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

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

// Reads a tensor (B, H, L, S) of any strides; an undefined one has no data.
template <class T>
Strided<const T> read_pairs(const at::Tensor& x) {
  if (!x.defined()) return {};
  auto view = read<T>(x);
  view.col = x.stride(3);
  return view;
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

// The incoming gradients of the results; those of the logsumexp and of the weights may be undefined.
struct Incoming {
  at::Tensor output, logsumexp, weights;
  bool of_dropped = false;  // whether the weights are those after dropout
};

// Which gradients are computed besides those of q, k and v. The sizes are those of the problem's bias and of
// its slopes, and empty if their gradients are not wanted.
struct Wanted {
  bool sinks = false;
  at::DimVector bias, slopes;
};

struct Gradients {
  at::Tensor q, k, v, sinks, bias, slopes;
};

// Adds up the terms (B, H, N) of rows or keys to `sizes`, which has as many dimensions and broadcasts to
// (B, H, N). The order is fixed: LibTorch's sum over several dimensions would take a head's terms in an order
// that depends on the other heads and on the number of threads.
at::Tensor sum_in_order(const at::Tensor& terms, at::IntArrayRef sizes) {
  const auto sums = at::zeros(sizes, terms.options());
  std::vector<double> totals(static_cast<size_t>(sums.numel()), 0.0);
  const int64_t items = terms.size(0), heads = terms.size(1), count = terms.size(2);
  const int64_t step_b = sizes[0] == 1 ? 0 : sizes[1] * sizes[2], step_h = sizes[1] == 1 ? 0 : sizes[2],
                step = sizes[2] == 1 ? 0 : 1;
  const auto* term = terms.const_data_ptr<float>();
  for (int64_t b = 0; b < items; ++b) {
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t n = 0; n < count; ++n)
        totals[static_cast<size_t>(b * step_b + h * step_h + n * step)] += *term++;
    }
  }
  std::copy(totals.begin(), totals.end(), sums.mutable_data_ptr<float>());
  return sums;
}

// The terms that the backward pass writes for the sinks, the bias and the slopes, and their sums.
class TermGradients {
 public:
  TermGradients(const CpuArguments& call, const Wanted& wanted, const at::TensorOptions& floats)
      : wanted_(wanted) {
    const auto terms = [&](int64_t count) { return at::empty({call.B, call.H, count}, floats); };
    if (wanted.sinks) sinks_ = terms(call.L);
    if (!wanted.slopes.empty()) slopes_ = terms(call.S);
    if (wanted.bias.empty()) return;
    if (wanted.bias[3] == 1) {
      by_query_ = terms(call.L);
    } else if (wanted.bias[2] == 1) {
      by_key_ = terms(call.S);
    } else {
      pairs_ = at::empty(wanted.bias, floats);
    }
  }

  float* sinks() const { return optional_data(sinks_); }
  cpu::LogitGradients logits() const {
    cpu::LogitGradients result{.by_key = optional_data(by_key_),
                               .by_query = optional_data(by_query_),
                               .slopes = optional_data(slopes_)};
    if (pairs_.defined()) {
      result.pairs = write<float>(pairs_);
      if (pairs_.size(0) == 1) result.pairs.b = 0;
      if (pairs_.size(1) == 1) result.pairs.h = 0;
    }
    return result;
  }

  void finish(Gradients& gradients) const {
    if (sinks_.defined()) gradients.sinks = sum_in_order(sinks_, {1, sinks_.size(1), 1}).view(-1);
    if (slopes_.defined())
      gradients.slopes = sum_in_order(slopes_, {wanted_.slopes[0], wanted_.slopes[1], 1}).squeeze(2);
    if (pairs_.defined()) gradients.bias = pairs_;
    if (by_key_.defined() || by_query_.defined()) {
      const auto& sizes = wanted_.bias;
      const auto& terms = by_key_.defined() ? by_key_ : by_query_;
      gradients.bias = sum_in_order(terms, {sizes[0], sizes[1], sizes[2] * sizes[3]}).view(sizes);
    }
  }

 private:
  const Wanted& wanted_;
  at::Tensor sinks_, slopes_, by_key_, by_query_, pairs_;
};

// The dot products of the rows of weights with their incoming gradients, (B, H, L).
at::Tensor compute_weight_dots(const CpuArguments& call, const Inputs& in, const Incoming& incoming) {
  const auto dots = at::empty({call.B, call.H, call.L}, in.q.options().dtype(at::kFloat));
  for_type(call, [&](auto number) {
    using T = decltype(number);
    cpu::weight_dots(call,
                     cpu::WeightDotsTensors<T>{read<T>(in.q), read<T>(in.k), read_pairs<T>(incoming.weights),
                                               dots.mutable_data_ptr<float>(), incoming.of_dropped});
  });
  return dots;
}

Gradients compute_gradients(const CpuArguments& call, const Inputs& in, const Computed& out,
                            const Incoming& incoming, const Wanted& wanted) {
  const TermGradients terms(call, wanted, in.q.options().dtype(at::kFloat));
  Gradients result{gradient_of(in.q), gradient_of(in.k), gradient_of(in.v), {}, {}, {}};
  const auto dots = incoming.weights.defined() ? compute_weight_dots(call, in, incoming) : at::Tensor();
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
                                          .sink_terms = terms.sinks(),
                                          .logits = terms.logits(),
                                          .grad_weights = read_pairs<T>(incoming.weights),
                                          .of_dropped = incoming.of_dropped,
                                          .weight_dots = optional_data(dots)});
  });
  terms.finish(result);
  return result;
}

class NativeAttention : public torch::autograd::Function<NativeAttention> {
 public:
  // `sinks`, `bias` and `slopes` are inputs so that autograd computes their gradients; the kernel reads their
  // numbers from kept->arguments. The results are the output, the logsumexp, and the weights if the options
  // ask for them.
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context,
                                                const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                const std::optional<at::Tensor>& sinks,
                                                const std::optional<at::Tensor>& bias,
                                                const std::optional<at::Tensor>& slopes,
                                                const c10::intrusive_ptr<SavedForBackward>& kept) {
    const auto call = make_call(kept->arguments.scalars, kept->arguments.masks, q.scalar_type());
    const auto [output, logsumexp, statistics] =
        compute(call, {q, k, v}, /*want_logsumexp=*/true, /*want_statistics=*/true);
    torch::autograd::variable_list results{output, logsumexp};
    if (kept->options.weights != Weights::None)
      results.push_back(compute_weights(call, {q, k, v}, kept->options.weights == Weights::Dropped));
    kept->changes.watch(output);
    auto saved = kept->arguments.with_masks({q, k, v, output.variable_data(), statistics});
    saved.push_back(bias.value_or(at::Tensor()));
    context->save_for_backward(std::move(saved));
    context->set_materialize_grads(false);  // zeros of the weights' size would cost O(L S) memory
    context->saved_data["kept"] = c10::IValue::make_capsule(kept);
    // For their place in the graph, even if their numbers change.
    context->saved_data["sinks"] = sinks;
    context->saved_data["slopes"] = slopes;
    return results;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const Saved saved(context);
    const bool any =
        std::any_of(gradients.begin(), gradients.end(), [](const auto& x) { return x.defined(); });
    if (!any) return torch::autograd::variable_list(7);
    return at::GradMode::is_enabled() ? gradients_with_graph(saved, gradients)
                                      : gradients_of(context, saved, gradients);
  }

 private:
  struct Saved {
    explicit Saved(torch::autograd::AutogradContext* context)
        : kept(c10::static_intrusive_pointer_cast<SavedForBackward>(context->saved_data["kept"].toCapsule())),
          sinks(context->saved_data["sinks"].toOptional<at::Tensor>().value_or(at::Tensor())),
          slopes(context->saved_data["slopes"].toOptional<at::Tensor>().value_or(at::Tensor())) {
      const auto tensors = context->get_saved_variables();
      in = {tensors[0], tensors[1], tensors[2]};
      out = {tensors[3], {}, tensors[4]};
      masks = MaskTensors::saved(&tensors[5]);
      bias = tensors[10];
    }

    Inputs in;
    Computed out;
    MaskTensors masks;
    at::Tensor bias;  // undefined unless it requires a gradient
    c10::intrusive_ptr<SavedForBackward> kept;
    at::Tensor sinks, slopes;  // as the caller gave them
  };

  // A small tensor that the definition reads again: the caller's, if autograd needs its place in the graph,
  // which must still have the numbers of the forward pass.
  static at::Tensor unchanged(const char* name, const at::Tensor& given, const at::Tensor& copy) {
    if (!requires_gradient(given)) return copy;
    TORCH_CHECK(given.detach().to(at::kFloat).expand_as(copy).allclose(copy, 0, 0, /*equal_nan=*/true),
                "attention: ", name,
                " were changed in place after the forward pass; under create_graph, the backward pass reads "
                "them again");
    return given;
  }

  // Under create_graph: the kernel records no graph, so the definition computes these gradients.
  static torch::autograd::variable_list gradients_with_graph(
      const Saved& saved, const torch::autograd::variable_list& gradients) {
    Problem problem = saved.kept->options;
    problem.q = saved.in.q;
    problem.k = saved.in.k;
    problem.v = saved.in.v;
    problem.keep = saved.masks.keep;
    problem.bias = requires_gradient(saved.bias) ? saved.bias : saved.masks.bias;
    problem.alibi_slopes = unchanged("alibi_slopes", saved.slopes, saved.masks.slopes);
    problem.key_lengths = saved.masks.lengths;
    problem.sinks = unchanged("sinks", saved.sinks, saved.masks.sinks);
    auto found = reference::gradients_with_graph(
        problem, {gradients[0], gradients.size() > 2 ? gradients[2] : at::Tensor(), gradients[1]});
    return {found.q, found.k, found.v, found.sinks, found.bias, found.alibi_slopes, at::Tensor()};
  }

  static torch::autograd::variable_list gradients_of(torch::autograd::AutogradContext* context,
                                                     const Saved& saved,
                                                     const torch::autograd::variable_list& gradients) {
    const auto& in = saved.in;
    auto out = saved.out;
    const auto call = make_call(saved.kept->arguments.scalars, saved.masks, in.q.scalar_type());
    if (saved.kept->changes.any())
      out.output = compute(call, in, /*want_logsumexp=*/false, /*want_statistics=*/true).output;
    Incoming incoming;
    incoming.output = gradients[0].defined()
                          ? with_unit_stride(gradients[0].to(in.q.scalar_type()).resolve_neg())
                          : at::zeros({1}, in.q.options()).expand(out.output.sizes()).contiguous();
    if (gradients[1].defined()) incoming.logsumexp = gradients[1].to(at::kFloat).resolve_neg().contiguous();
    if (gradients.size() > 2 && gradients[2].defined()) {
      incoming.weights = gradients[2].to(in.q.scalar_type()).resolve_neg();
      incoming.of_dropped = saved.kept->options.weights == Weights::Dropped;
    }
    Wanted wanted;
    // Autograd counts the inputs that are there.
    size_t input = 3;
    if (saved.sinks.defined()) wanted.sinks = context->needs_input_grad(input++);
    if (saved.bias.defined() && context->needs_input_grad(input++)) wanted.bias = saved.bias.sizes();
    if (saved.slopes.defined() && context->needs_input_grad(input++)) wanted.slopes = saved.slopes.sizes();
    const auto result = compute_gradients(call, in, out, incoming, wanted);
    return {result.q, result.k, result.v, result.sinks, result.bias, result.slopes, at::Tensor()};
  }
};

// The tensors of a problem that may require a gradient.
constexpr std::array kDifferentiable = {&Problem::q,     &Problem::k,    &Problem::v,
                                        &Problem::sinks, &Problem::bias, &Problem::alibi_slopes};

bool differentiates(const Problem& problem) {
  return std::any_of(kDifferentiable.begin(), kDifferentiable.end(),
                     [&](auto tensor) { return requires_gradient(problem.*tensor); });
}

std::optional<at::Tensor> if_differentiable(const at::Tensor& x) {
  return requires_gradient(x) ? std::optional(x) : std::nullopt;
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
  if (!is_moderate(problem.scale)) return Verdict::no("it needs a scale between 1e-30 and 1e30");
  if (!is_moderate(problem.softcap)) return Verdict::no("it needs a softcap between 1e-30 and 1e30");
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
    auto outputs =
        NativeAttention::apply(q, k, v, if_differentiable(problem.sinks), if_differentiable(problem.bias),
                               if_differentiable(problem.alibi_slopes), kept);
    result.output = outputs[0];
    logsumexp = outputs[1];
    if (problem.weights != Weights::None) result.weights = outputs[2];
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
