#include "kernels/native_cpu/compute.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros.h>

#include "core/large_pages.h"
#include "kernels/attention/own_functions.h"
#include "kernels/attention/passes.h"
#include "kernels/native_cpu/term_gradients.h"
#include "kernels/native_cpu/views.h"

namespace attentive::kernels::native_cpu {
namespace {

using cpu::CpuArguments;

// Allocates (B, H, L, D) in the memory layout (B, L, H, D), so that merging the heads afterwards is a view.
// The tensor is not itself a view, because autograd would forbid changing a view in place.
at::Tensor heads_inside(const at::Tensor& like, int64_t heads, int64_t rows, int64_t dim) {
  return in_large_pages(at::empty_strided({like.size(0), heads, rows, dim},
                                          {rows * heads * dim, dim, heads * dim, 1}, like.options()));
}

// Allocates a gradient with the strides of its tensor if that has no gaps, so that a leaf can keep it without
// a copy.
at::Tensor gradient_of(const at::Tensor& x) {
  const auto gradient = at::empty_like(x);
  return gradient.stride(3) == 1 || x.size(3) == 1 ? in_large_pages(gradient)
                                                   : heads_inside(x, x.size(1), x.size(2), x.size(3));
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

at::Tensor fresh_weights(const CpuArguments& call, const Inputs& in) {
  return in_large_pages(at::empty({call.B, call.H, call.L, call.S}, in.q.options()));
}

// Whether the backward pass reads the weights instead of computing them again. Softcaps and scores of the
// program need the scores, and dropout the weights before it; classes of tiles save more than reading does.
bool reads_weights(const CpuArguments& call, const Incoming& incoming) {
  return incoming.weights.defined() && call.element == Element::Float32 && call.softcap == 0.0f &&
         !call.own.score && !call.own.blocks && !(call.dropout && incoming.of_dropped);
}

// The weights that have an incoming gradient, as the backward pass reads them: those of the forward pass, or
// computed again. Undefined for a half type, whose weights are rounded.
at::Tensor weights_to_read(const CpuArguments& call, const Inputs& in, const Computed& out,
                           const Incoming& incoming) {
  if (!incoming.weights.defined() || call.element != Element::Float32) return {};
  if (out.weights.defined()) return out.weights;
  auto weights = fresh_weights(call, in);
  cpu::weights(call, cpu::WeightsTensors<float>{read<float>(in.q), read<float>(in.k),
                                                weights.mutable_data_ptr<float>(), incoming.of_dropped});
  return weights;
}

// The dot products of the rows of weights with their incoming gradients, (B, H, L).
at::Tensor weight_dots(const CpuArguments& call, const Inputs& in, const at::Tensor& weights,
                       const Incoming& incoming) {
  if (!incoming.weights.defined()) return {};
  const auto dots = at::empty({call.B, call.H, call.L}, in.q.options().dtype(at::kFloat));
  cpu::for_element(call.element, [&](auto number) {
    using T = decltype(number);
    cpu::weight_dots(call,
                     cpu::WeightDotsTensors<T>{read<T>(in.q), read<T>(in.k), read_pairs<T>(incoming.weights),
                                               dots.mutable_data_ptr<float>(), incoming.of_dropped,
                                               read_data<float>(weights)});
  });
  return dots;
}

}  // namespace

PreparedFunctions::PreparedFunctions(const Problem& problem)
    : score(problem.score), mask(problem.mask), blocks(problem.blocks) {
  if (!score && !mask) return;
  captured = captured_inputs(problem);
  views = captured_views(captured);
}

PreparedFunctions PreparedFunctions::with_numbers(const at::Tensor* numbers) const {
  PreparedFunctions result = *this;
  for (auto& input : result.captured) input.numbers = *numbers++;
  result.views = captured_views(result.captured);
  return result;
}

CpuArguments call_of(const Scalars& scalars, const MaskTensors& masks, at::ScalarType type,
                     const PreparedFunctions& functions, bool normalise) {
  CpuArguments call{
      kernel_arguments(scalars, masks), scalars.H / scalars.Hkv, element_of(type), normalise, {}};
  const auto own = [](const auto& function) {
    return cpu::OwnFunction{function->function(), &cpu::code_here(*function)};
  };
  if (functions.score) call.own.score = own(functions.score.function());
  if (functions.mask) call.own.mask = own(functions.mask.function());
  call.own.captured = functions.views.data();
  if (const auto& blocks = functions.blocks) {
    const auto& classes = blocks->classes;
    call.own.blocks = {classes.const_data_ptr<uint8_t>(), blocks->batch == 1 ? 0 : classes.stride(0),
                       blocks->heads == 1 ? 0 : classes.stride(1), classes.stride(2)};
  }
  return call;
}

std::shared_ptr<const attentive::detail::BlockClasses> classify(const Problem& problem) {
  const PreparedFunctions functions(problem);
  const auto& mask = *problem.mask.function();
  auto result = std::make_shared<attentive::detail::BlockClasses>();
  result->batch = mask.by_batch() ? problem.batch() : 1;
  result->heads = mask.by_head() ? problem.heads() : 1;
  result->queries = problem.queries();
  result->keys = problem.keys();
  for (const auto& captured : mask.captured()) {
    if (!captured->tensor.is_inference()) result->versions.push_back(captured->tensor._version());
  }
  const auto blocks = [](int64_t n) { return cpu::round_up(n, cpu::kBlock) / cpu::kBlock; };
  result->classes =
      at::empty({result->batch, result->heads, blocks(result->queries), blocks(result->keys)}, at::kByte);

  Scalars scalars{result->batch, result->heads, result->heads, result->queries, result->keys, 1, 1,
                  problem.band};
  take_places(problem, scalars);
  cpu::classify_blocks(call_of(scalars, {}, at::kFloat, functions), mask,
                       result->classes.mutable_data_ptr<uint8_t>());
  return result;
}

at::Tensor with_unit_stride(const at::Tensor& x) {
  return x.stride(-1) == 1 || x.size(-1) == 1 ? x : x.contiguous();
}

Inputs inputs_of(const Problem& problem) {
  return {with_unit_stride(problem.q), with_unit_stride(problem.k), with_unit_stride(problem.v)};
}

PreparedCall::PreparedCall(const Problem& problem, uint64_t dropout_key)
    : owned(arguments_of(problem, dropout_key, Biases::HalfTypes, /*for_backward=*/false)),
      call(call_of(owned.scalars, owned.masks, problem.q.scalar_type())),
      in(inputs_of(problem)) {}

Computed compute(const CpuArguments& call, const Inputs& in, const Results& wanted,
                 const at::Tensor& output) {
  const auto floats = in.q.options().dtype(at::kFloat);
  Computed out{output.defined() ? output : heads_inside(in.q, call.H, call.L, call.Dv), {}, {}};
  if (wanted.logsumexp) out.logsumexp = at::empty({call.B, call.H, call.L}, floats);
  if (wanted.statistics) out.statistics = at::empty({2, call.B, call.H, call.L}, floats);
  if (wanted.weights != Weights::None) out.weights = fresh_weights(call, in);
  cpu::for_element(call.element, [&](auto number) {
    using T = decltype(number);
    const cpu::ForwardTensors<T> tensors{read<T>(in.q),
                                         read<T>(in.k),
                                         read<T>(in.v),
                                         write<T>(out.output),
                                         written_data<float>(out.logsumexp),
                                         row_statistics(out.statistics),
                                         written_data<T>(out.weights),
                                         wanted.weights == Weights::Dropped};
    const bool few = has_few_queries(call) && !out.statistics.defined();
    few ? cpu::few_queries(call, tensors) : cpu::forward(call, tensors);
  });
  return out;
}

Incoming incoming_of(const AttentionResult& gradients, const at::Tensor& output, Weights weights) {
  Incoming incoming;
  incoming.output = gradients.output.defined()
                        ? with_unit_stride(gradients.output.to(output.scalar_type()).resolve_neg())
                        : at::zeros({1}, output.options()).expand(output.sizes()).contiguous();
  if (gradients.logsumexp.defined())
    incoming.logsumexp = gradients.logsumexp.to(at::kFloat).resolve_neg().contiguous();
  if (gradients.weights.defined()) {
    incoming.weights = gradients.weights.to(output.scalar_type()).resolve_neg();
    incoming.of_dropped = weights == Weights::Dropped;
  }
  return incoming;
}

Gradients compute_gradients(const CpuArguments& call, const Inputs& in, const Computed& out,
                            const Incoming& incoming, const Wanted& wanted) {
  const TermGradients terms(call, wanted, in.q.options().dtype(at::kFloat));
  CapturedGradients captured(call, wanted.captured);
  Gradients result{gradient_of(in.q), gradient_of(in.k), gradient_of(in.v), {}, {}, {}};
  const bool weighed = reads_weights(call, incoming);
  const auto weights = weights_to_read(call, in, out, incoming);
  const auto dots = weighed ? at::Tensor() : weight_dots(call, in, weights, incoming);
  cpu::for_element(call.element, [&](auto number) {
    using T = decltype(number);
    const cpu::BackwardTensors<T> tensors{.q = read<T>(in.q),
                                          .k = read<T>(in.k),
                                          .v = read<T>(in.v),
                                          .output = read<T>(out.output),
                                          .grad_output = read<T>(incoming.output),
                                          .statistics = row_statistics(out.statistics),
                                          .grad_logsumexp = read_data<float>(incoming.logsumexp),
                                          .grad_q = write<T>(result.q),
                                          .grad_k = write<T>(result.k),
                                          .grad_v = write<T>(result.v),
                                          .sink_terms = terms.sinks(),
                                          .logits = terms.logits<T>(),
                                          .grad_weights = read_pairs<T>(incoming.weights),
                                          .of_dropped = incoming.of_dropped,
                                          .weight_dots = read_data<float>(dots),
                                          .weights = read_data<float>(weights),
                                          .captured_lanes = captured.lanes()};
    if constexpr (std::is_same_v<T, float>) {
      if (weighed) return cpu::weighed_backward(call, tensors);
    }
    cpu::backward(call, tensors);
  });
  terms.finish(result);
  result.captured = captured.finish();
  return result;
}

}  // namespace attentive::kernels::native_cpu
