#pragma once

// The passes over tiles. Each is defined in the source of the same name.

#include <algorithm>
#include <limits>
#include <vector>

#include <attentive/score/score_callbacks.h>

#include "kernels/attention/rows.h"
#include "kernels/call.h"
#include "kernels/simd/elementwise.h"

namespace attentive::kernels::cpu {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

inline int64_t round_up(int64_t x, int64_t to) {
  return (x + to - 1) / to * to;
}

/// A view of `count` rows of a tensor, with `width` contiguous numbers each.
template <class T>
Matrix<T> rows_of(const Strided<T>& x, int64_t b, int64_t h, int64_t row, int64_t count, int64_t width) {
  return {x.at(b, h, row), count, width, x.row};
}

/// The pairs of some queries and keys of one head.
struct Pairs {
  int64_t b, h, i0, queries, j0, keys;
};

/// Whether a softmax turns scores into weights that are only scaled before: no bias, slope, cap or function
/// of the program's own.
inline bool only_scaled(const Call& call) {
  return call.normalise && call.rule.plain() && !call.slopes && !call.bias && !call.user.score &&
         !call.user.mask && !call.user.blocks;
}

/// Calls work(T{}) for the type T of an element type.
template <class Work>
void for_element(Element element, const Work& work) {
  switch (element) {
    case Element::Float32:
      return work(float{});
    case Element::BFloat16:
      return work(bf16_t{});
    case Element::Float16:
      return work(f16_t{});
  }
}

/// The statistics of each row that the backward pass needs from the forward pass, (B, H, L) each.
struct RowStatistics {
  float* maximum = nullptr;    ///< in the units of ScoreRule; 0 for a row without keys
  float* log_total = nullptr;  ///< natural logarithm; +inf for a row without keys
};

/// Ends a row from the final `maximum` and `sum` of its SoftmaxRow. The factor does not include dropout's
/// scale.
RowEnd end_of_row(const Call& call, int64_t b, int64_t h, int64_t i, float maximum, float total);

/// The weight of head h's sink in a row with these statistics.
float sink_weight(const Call& call, int64_t b, int64_t h, float maximum, float log_total);

/// The tensors that the forward pass reads and writes. Strides count elements; the last dimension is
/// contiguous.
template <class T>
struct ForwardTensors {
  Strided<const T> q, k, v;
  Strided<T> output;
  float* logsumexp;          ///< (B, H, L), natural logarithm; null: not wanted
  RowStatistics statistics;  ///< for the backward pass; null pointers: not wanted
  T* weights = nullptr;      ///< (B, H, L, S), written, with rows of keys_of_head; null: not wanted
  bool dropped = false;      ///< whether dropout is applied to them

  /// Writes row i of the output, O / ℓ or zeros for a row without keys, and the statistics that are wanted.
  void write_row(const Call& call, int64_t b, int64_t h, int64_t i, float maximum, float total,
                 const float* sums) const {
    const RowEnd end = end_of_row(call, b, h, i, maximum, total);
    T* const row = output.at(b, h, i);
    // The sums include 0 times every hidden value of their tile, which is NaN if that value is not finite.
    if (end.factor == 0.0f) {
      std::fill_n(row, call.Dv, T{0});
    } else {
      elementwise().store_scaled(sums, end.factor * call.survivor_scale, row, call.Dv);
    }
    write_statistics(call.row_index(b, h, i), end);
  }
  /// Writes the statistics of a row that are wanted.
  void write_statistics(int64_t index, const RowEnd& end) const {
    if (logsumexp) logsumexp[index] = end.logsumexp();
    if (statistics.maximum) statistics.maximum[index] = end.maximum;
    if (statistics.log_total) statistics.log_total[index] = end.log_total();
  }
};

/// The results of queries without a key.
template <class T>
void rows_without_keys(const Call& call, const ForwardTensors<T>& tensors) {
  for (int64_t row = 0; row < call.B * call.H * call.L; ++row) {
    const int64_t head = row / call.L;
    tensors.write_row(call, head / call.H, head % call.H, row % call.L, -kInfinity, 0.0f, nullptr);
  }
}

/// Tiled attention with a running softmax. Keys are packed head by head into a buffer of bounded size.
/// The weights of rows that one tile holds are written beside the output.
template <class T>
void forward(const Call& call, const ForwardTensors<T>& tensors);

/// Attention of at most 16 queries: one pass through the keys computes all query heads of a group, and
/// threads share parts of the keys. It writes no statistics, because it sums scores in another order than the
/// backward pass, which would then recompute slightly different weights.
template <class T>
void few_queries(const Call& call, const ForwardTensors<T>& tensors);

/// Where the backward pass writes the gradients of the logits, for what was added to them: biases and slopes.
/// Every sum has one order, whatever the number of threads. All may be null.
template <class T>
struct LogitGradients {
  Strided<T> pairs = {};  ///< (B, H, L, S), written, rows contiguous
  /// Likewise, but a stride of 0 sums over the items or heads.
  Strided<float> pair_sums = {};
  float* by_key = nullptr;    ///< (B, H, S), written: sums over the queries
  float* by_query = nullptr;  ///< (B, H, L), written: sums over the keys
  float* slopes = nullptr;    ///< (B, H, S), written: sums of -|distance| * gradient over the queries
  bool begun = false;         ///< whether `pair_sums` hold numbers that are added to

  bool any_of_tiles() const { return pairs || pair_sums || by_key || slopes; }
  /// Whether a head is the first that is added to its `pair_sums`.
  bool begins_sums(int64_t b, int64_t h) const {
    return !begun && (pair_sums.b != 0 || b == 0) && (pair_sums.h != 0 || h == 0);
  }
};

/// The tensors that the backward pass reads and writes. It writes every element of the gradients.
template <class T>
struct BackwardTensors {
  Strided<const T> q, k, v, output, grad_output;
  RowStatistics statistics;     ///< statistics that the forward pass wrote
  const float* grad_logsumexp;  ///< (B, H, L) or null
  Strided<T> grad_q, grad_k, grad_v;
  /// (1, Hkv, S, D) and (1, Hkv, S, Dv), of `backward`, for keys and values of one item that all share: the
  /// gradients are added to these in place of being written. Null: every item has its own.
  Strided<float> shared_grad_k = {}, shared_grad_v = {};
  /// (B, H, L), written: the contribution of each row to the gradient of its head's sink. May be null.
  float* sink_terms;
  LogitGradients<T> logits = {};
  /// (B, H, L, S): the incoming gradient of the weights; null: none.
  Strided<const T> grad_weights = {};
  bool of_dropped = false;  ///< whether it is that of the weights after dropout
  /// (B, H, L) from `weight_dots`, for `backward`; null without grad_weights.
  const float* weight_dots = nullptr;
  /// (B, H, L, S), with rows of keys_of_head: the weights before dropout, for `backward_from_weights`.
  const float* weights = nullptr;
  /// The captured tensors once per lane of work, with memory for its part of their gradients; empty: not
  /// wanted. A lane computes its heads one after the other, which fixes the order of its sums.
  std::vector<std::vector<detail::CapturedView>> captured_lanes = {};
};

/// The sums over a row of gradients of logits that need no tile: the gradient of a sink is that of a key with
/// value zero, for which dP is 0, and the gradients of all logits of a row add up to that of the logsumexp.
template <class T>
void write_row_sums(const Call& call, const BackwardTensors<T>& to, int64_t b, int64_t h, int64_t i,
                    float delta) {
  if (!to.sink_terms && !to.logits.by_query) return;
  const int64_t offset = call.row_index(b, h, i);
  const float maximum = to.statistics.maximum[offset], log_total = to.statistics.log_total[offset];
  const float sink_term = call.sinks ? -sink_weight(call, b, h, maximum, log_total) * delta : 0.0f;
  if (to.sink_terms) to.sink_terms[offset] = sink_term;
  if (!to.logits.by_query) return;
  const bool has_no_weight = log_total == kInfinity;
  const float grad_logsumexp = to.grad_logsumexp ? to.grad_logsumexp[offset] : 0.0f;
  // A row of NaN has gradients of NaN.
  to.logits.by_query[offset] = has_no_weight ? 0.0f : grad_logsumexp - sink_term + 0.0f * delta;
}

/// Recomputes the weights in transposed tiles, whose rows are keys: the statistics of the queries are then
/// vectors along a row, and no row has to be reduced. Sums are float32.
template <class T>
void backward(const Call& call, const BackwardTensors<T>& tensors);

/// The gradients of a call without queries or without keys, which are 0.
template <class T>
void gradients_without_pairs(const Call& call, const BackwardTensors<T>& to) {
  const auto clear = [&](const Strided<T>& x, int64_t heads, int64_t rows, int64_t width) {
    for (int64_t row = 0; row < call.B * heads * rows; ++row)
      std::fill_n(x.at(row / rows / heads, row / rows % heads, row % rows), width, T{});
  };
  clear(to.grad_q, call.H, call.L, call.D);
  clear(to.grad_k, call.Hkv, call.S, call.D);
  clear(to.grad_v, call.Hkv, call.S, call.Dv);
  for (int64_t head = 0; head < call.B * call.H; ++head) {
    const int64_t b = head / call.H, h = head % call.H;
    if (to.sink_terms) std::fill_n(to.sink_terms + call.row_index(b, h, 0), call.L, 0.0f);
    if (to.logits.slopes) std::fill_n(to.logits.slopes + call.key_index(b, h, 0), call.S, 0.0f);
  }
}

/// Backward pass from stored weights, for a caller that also sent a gradient for the weights, which is that
/// of the weights before dropout. It is for calls without a cap, a custom score function or classes of tiles.
void backward_from_weights(const Call& call, const BackwardTensors<float>& tensors);

template <class T>
struct WeightsTensors {
  Strided<const T> q, k;
  T* weights;    ///< (B, H, L, S), written, with rows of keys_of_head
  bool dropped;  ///< whether dropout is applied
};

/// Computes the weights of a call that requests them. Each row is divided by its own total instead of using
/// the forward pass's logsumexp, whose rounding error grows with the largest score.
template <class T>
void weights(const Call& call, const WeightsTensors<T>& tensors);

/// Computes those of a forward pass that has not written them, if they are wanted.
template <class T>
void missing_weights(const Call& call, const ForwardTensors<T>& of) {
  if (of.weights) weights(call, WeightsTensors<T>{of.q, of.k, of.weights, of.dropped});
}

template <class T>
struct WeightDotsTensors {
  Strided<const T> q, k;
  Strided<const T> grad_weights;  ///< (B, H, L, S)
  float* dots;                    ///< (B, H, L), written
  bool dropped;                   ///< whether it is the gradient of the weights after dropout
  /// (B, H, L, S), with rows of keys_of_head; null for a half type, whose weights are rounded: they are
  /// computed again.
  const float* weights = nullptr;
};

/// The dot product of each row of weights with its gradient, which the backward pass adds to δ.
template <class T>
void weight_dots(const Call& call, const WeightDotsTensors<T>& tensors);

}  // namespace attentive::kernels::cpu
