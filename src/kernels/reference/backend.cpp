#include "kernels/reference/backend.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "kernels/dropout_counter.h"
#include "kernels/native_backward.h"
#include "kernels/reference/visibility.h"

namespace attentive::kernels::reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kMinusInfinity = -kInfinity;

at::ScalarType accumulate_type(const Problem& problem) {
  return problem.q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

// Scores after scale, softcap, bias and ALiBi. `hidden` marks the pairs whose scores are replaced later; it
// may be undefined.
at::Tensor biased_scores(const Problem& problem, const Rectangle& part, const at::Tensor& q,
                         const at::Tensor& k, const at::Tensor& hidden) {
  auto scores =
      unstack_groups(at::matmul(stack_groups(q, problem.kv_heads()), k.transpose(2, 3)), problem.heads());
  // Divides, as the notebooks do, because multiplying by the reciprocal differs in the last bit.
  scores =
      problem.scale ? scores * *problem.scale : scores / std::sqrt(static_cast<double>(problem.head_dim()));
  if (problem.score) {
    const detail::TensorEvaluation evaluation{
        .numbers = scores.options(), .hidden = hidden, .replaced = problem.captured};
    detail::TensorScore s(scores);
    if (problem.softcap) s = *problem.softcap * tanh(s / *problem.softcap);
    const auto changed = problem.score.function()->score(s, places_of(problem, part, evaluation));
    scores = detail::numbers_of(changed, hidden).to(scores.options()).expand_as(scores);
  } else if (problem.softcap) {
    // The gradient of tanh is NaN for an argument of NaN, even if nothing reads the result.
    if (hidden.defined()) scores = scores.masked_fill(hidden, 0.0);
    scores = *problem.softcap * at::tanh(scores / *problem.softcap);
  }
  if (problem.bias.defined()) scores = scores + cut(problem.bias, part).to(scores.scalar_type());
  if (problem.alibi_slopes.defined()) {
    const int64_t first = problem.band.position(part.row0);
    const auto i = at::arange(first, first + part.rows, scores.options()).unsqueeze(1);
    const auto j = at::arange(part.col0, part.col0 + part.cols, scores.options());
    const auto ahead = i - j;
    const auto distance = at::maximum(ahead, -ahead);  // abs has no meta kernel
    const auto& slopes = problem.alibi_slopes;
    scores = scores - slopes.to(scores.scalar_type()).view({slopes.size(0), slopes.size(1), 1, 1}) * distance;
  }
  return scores;
}

at::Tensor drop(const Problem& problem, const Rectangle& part, const at::Tensor& weights) {
  const double p = problem.dropout_p;
  if (p == 1.0) return at::zeros_like(weights);
  if (problem.dropout_stream == DropoutStream::Aten) {
    const bool on_cpu = weights.device().is_cpu();
    if (!on_cpu && !problem.generator) return at::dropout(weights, p, /*train=*/true);
    // Draws as nn::Dropout does: one bernoulli_ over the whole tensor in row-major order.
    const auto noise =
        at::empty_like(weights, weights.options().device(at::kCPU), at::MemoryFormat::Contiguous)
            .bernoulli_(1 - p, problem.generator);
    return weights * noise.div_(1 - p).to(weights.device());
  }
  if (weights.is_meta()) return weights * 1.0;
  const auto keep = counter_keep_mask(*problem.dropout_key, p, problem.batch_offset, problem.batch(),
                                      problem.head_offset, problem.heads(),
                                      problem.band.counter_row(part.row0), part.rows, part.col0, part.cols);
  return weights * keep.to(weights.device()) * survivor_scale(p);
}

// Like at::logsumexp, but the gradient is computed from the maximum and the total separately: at::logsumexp's
// uses their sum, in which a large maximum swallows the digits of the total.
at::Tensor logsumexp(const at::Tensor& scores) {
  if (scores.size(3) == 0) return at::logsumexp(scores, 3);
  auto top = scores.detach().amax(3, /*keepdim=*/true);
  top = top.masked_fill(top.isinf(), 0.0);
  return (scores - top).exp().sum(3).log() + top.squeeze(3);
}

// Adds the weights that are wanted and the output. `empty`: queries without any key; undefined: there are
// none.
void weighted_values(const Problem& problem, const Rectangle& part, const at::Tensor& weights,
                     const at::Tensor& v, const at::Tensor& empty, AttentionResult& result) {
  const auto dropped = problem.has_dropout() ? drop(problem, part, weights) : weights;
  if (problem.weights == Weights::Clean) result.weights = weights.to(problem.q.scalar_type());
  if (problem.weights == Weights::Dropped) result.weights = dropped.to(problem.q.scalar_type());
  auto output = unstack_groups(at::matmul(stack_groups(dropped, problem.kv_heads()), v), problem.heads());
  if (empty.defined()) output = output.masked_fill(empty, 0.0);  // 0 times a value of NaN is NaN
  result.output = output.to(problem.q.scalar_type());
}

// Computes attention of the rectangle's queries over its keys.
AttentionResult dense(const Problem& problem, const Rectangle& part) {
  const auto type = accumulate_type(problem);
  const auto q = problem.q.slice(2, part.row0, part.row0 + part.rows).to(type);
  auto k = problem.k.slice(2, part.col0, part.col0 + part.cols).to(type);
  auto v = problem.v.slice(2, part.col0, part.col0 + part.cols).to(type);

  auto visible = visible_pairs(problem, part);
  // If the rectangle has no keys, no query sees one.
  if (!visible.defined() && part.cols == 0)
    visible = at::zeros({1, 1, part.rows, 0}, problem.q.options().dtype(at::kBool));
  if (visible.defined()) {
    k = without_unseen(k, visible, problem.kv_heads());
    v = without_unseen(v, visible, problem.kv_heads());
  }

  const auto hidden = visible.defined() ? visible.bitwise_not() : at::Tensor();
  auto scores = biased_scores(problem, part, q, k, hidden);
  AttentionResult result;
  at::Tensor empty;  // queries without any key
  if (visible.defined()) {
    // Hidden scores are replaced rather than added to, so that NaN or Inf in them has no effect. A row
    // without keys is made finite before the softmax, because its gradient would otherwise be NaN.
    scores = scores.masked_fill(hidden, kMinusInfinity);
    empty = visible.any(3, /*keepdim=*/true).bitwise_not();
    scores = scores.masked_fill(empty, 0.0);
  }
  if (!problem.normalise) {
    weighted_values(problem, part, hidden.defined() ? scores.masked_fill(hidden, 0.0) : scores, v, empty,
                    result);
    return result;
  }
  at::Tensor absorbed;  // heads with a sink of +inf, which leaves no weight to the keys
  if (problem.sinks.defined()) {
    auto sinks = problem.sinks.to(type).view({1, problem.heads(), 1, 1});
    absorbed = sinks.detach().eq(kInfinity);
    sinks = sinks.masked_fill(absorbed, 0.0);  // inf - inf would be NaN
    sinks = sinks.expand({problem.batch(), problem.heads(), part.rows, 1});
    // In a row without keys, even a sink of NaN gets no gradient.
    if (empty.defined()) sinks = sinks.masked_fill(empty, 0.0);
    scores = at::cat({scores, sinks}, 3);
  }

  if (problem.logsumexp) {
    // at::logsumexp and amax have no meta kernel, and a sum has the same shape and a graph.
    result.logsumexp = scores.is_meta() ? scores.sum(3) : logsumexp(scores);
    if (absorbed.defined()) result.logsumexp = result.logsumexp.masked_fill(absorbed.squeeze(3), kInfinity);
    if (empty.defined()) result.logsumexp = result.logsumexp.masked_fill(empty.squeeze(3), kMinusInfinity);
  }
  auto weights = at::softmax(scores, -1);
  if (problem.sinks.defined()) weights = weights.slice(3, 0, part.cols).masked_fill(absorbed, 0.0);
  if (empty.defined()) weights = weights.masked_fill(empty, 0.0);
  weighted_values(problem, part, weights, v, empty, result);
  return result;
}

// With a window that is bounded on both sides, computes blocks of queries over the keys that they see: O(L W)
// instead of O(L S).
AttentionResult windowed(const Problem& problem) {
  constexpr int64_t kMinimumRows = 64;
  const auto& band = problem.band;
  const int64_t block = std::max(kMinimumRows, band.hi - band.lo + 1);
  std::vector<at::Tensor> outputs, logsumexps;
  for (int64_t row0 = 0; row0 < problem.queries(); row0 += block) {
    const int64_t rows = std::min(block, problem.queries() - row0);
    const int64_t begin = band.key_lo(row0, problem.keys());
    const int64_t end = std::max(begin, band.key_hi(row0 + rows - 1, problem.keys()));
    const auto result = dense(problem, {row0, rows, begin, end - begin});
    outputs.push_back(result.output);
    if (problem.logsumexp) logsumexps.push_back(result.logsumexp);
  }
  return {at::cat(outputs, 2), {}, problem.logsumexp ? at::cat(logsumexps, 2) : at::Tensor()};
}

bool worth_windowing(const Problem& problem) {
  // The Aten stream draws one number per score of the whole matrix, and requested weights are the whole
  // matrix.
  const bool whole_matrix = problem.weights != Weights::None ||
                            (problem.has_dropout() && problem.dropout_stream == DropoutStream::Aten);
  return problem.band.has_lo() && problem.band.has_hi() && !whole_matrix && problem.queries() > 128;
}

}  // namespace

AttentionResult run(const Problem& given) {
  Problem problem = given;
  if (problem.has_dropout() && problem.dropout_p < 1.0 && problem.dropout_stream != DropoutStream::Aten &&
      !problem.dropout_key) {
    problem.dropout_key = draw_dropout_key(problem.generator);
  }
  if (problem.sequences)
    return run_by_sequence(problem, [](const Problem& one) { return Outcome{run(one), {}}; }).result;
  if (worth_windowing(problem)) return windowed(problem);
  return dense(problem, {0, problem.queries(), 0, problem.keys()});
}

at::Tensor scores(const Problem& problem) {
  if (problem.sequences) {
    std::vector<at::Tensor> parts;
    for (size_t n = 0; n < problem.sequences->size(); ++n) parts.push_back(scores(sequence_of(problem, n)));
    return joined(problem, std::move(parts), /*pairs=*/true, kMinusInfinity);
  }
  const auto type = accumulate_type(problem);
  const Rectangle whole = {0, problem.queries(), 0, problem.keys()};
  const auto q = problem.q.to(type), k = problem.k.to(type);
  const auto visible = visible_pairs(problem, whole);
  if (!visible.defined()) return biased_scores(problem, whole, q, k, visible);
  const auto hidden = visible.bitwise_not();
  return biased_scores(problem, whole, q, without_unseen(k, visible, problem.kv_heads()), hidden)
      .masked_fill(hidden, kMinusInfinity);
}

Gradients gradients_by_autograd(Problem problem, const AttentionResult& incoming,
                                const std::function<AttentionResult(const Problem&)>& run,
                                bool create_graph) {
  // As in the forward pass: products keep the precision of their operands.
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  // One tensor may be queries, keys and values at once; a view of each tells their gradients apart.
  std::vector<at::Tensor> wanted;
  for (const auto input : kDifferentiable) {
    auto& x = problem.*input;
    if (!requires_gradient(x)) continue;
    x = x.view_as(x);
    wanted.push_back(x);
  }
  for (auto& [owner, tensor] : problem.captured) {
    if (!requires_gradient(tensor)) continue;
    tensor = tensor.view_as(tensor);
    wanted.push_back(tensor);
  }
  if (!incoming.weights.defined()) problem.weights = Weights::None;
  problem.logsumexp = incoming.logsumexp.defined();
  const auto computed = run(problem);
  // Weights and logsumexp do not depend on the values.
  const auto found =
      gradients_of_leaves({computed.output, computed.weights, computed.logsumexp},
                          {incoming.output, incoming.weights, incoming.logsumexp}, wanted, create_graph);
  auto next = found.begin();
  std::array<at::Tensor, kDifferentiable.size()> gradients;
  for (size_t i = 0; i < kDifferentiable.size(); ++i) {
    if (requires_gradient(problem.*kDifferentiable[i])) gradients[i] = *next++;
  }
  const auto& [q, k, v, sinks, bias, alibi_slopes] = gradients;  // in the order of kDifferentiable
  Gradients result{q, k, v, sinks, bias, alibi_slopes};
  for (const auto& [owner, tensor] : problem.captured)
    result.captured.push_back(requires_gradient(tensor) ? *next++ : at::Tensor());
  return result;
}

Gradients gradients_with_graph(Problem problem, const AttentionResult& incoming) {
  return gradients_by_autograd(std::move(problem), incoming, run, /*create_graph=*/true);
}

}  // namespace attentive::kernels::reference
