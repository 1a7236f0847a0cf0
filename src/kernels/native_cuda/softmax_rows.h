#pragma once

// The interface of a thread block to the row kernels. A kernel is a sequence of phases, each of which says
// what every thread does and ends with a barrier; within a phase no thread may read what another one writes.
// The kernels run on the GPU (DeviceBlock) and in tests on the CPU, thread by thread, where this rule is
// checked.

#include <cmath>
#include <cstdint>

#include "kernels/call.h"
#include "kernels/philox.h"
#include "kernels/terms.h"

#if defined(__CUDA_ARCH__)
#define ATTENTIVE_UNROLL _Pragma("unroll")
#else
#define ATTENTIVE_UNROLL  // the host's compiler may not know the pragma and does not need it
#endif

namespace attentive::kernels::native_cuda {

// A Block has these members:
//   int size() const                      number of threads, a power of two
//   template <class T, int N> PerThread   N numbers of every thread that persist between phases: x(thread)[n]
//   void phase(f)                         calls f(thread) for every thread, then waits at a barrier
//   float read(thread, at), write(thread, at, x)   access the shared numbers, one per thread

struct Larger {
  /// A NaN is ignored here; it reaches the result through the sum.
  ATTENTIVE_HOST_DEVICE float operator()(float a, float b) const { return b > a ? b : a; }
};
struct Sum {
  ATTENTIVE_HOST_DEVICE float operator()(float a, float b) const { return a + b; }
};

/// Reduces the numbers of all threads and gives every thread the result. The order of a tree of halves never
/// changes.
template <class Block, class Scalars, class Operation>
ATTENTIVE_HOST_DEVICE void reduce(Block& block, Scalars& numbers, Operation operation) {
  block.phase([&](int t) { block.write(t, t, numbers(t)[0]); });
  for (int half = block.size() / 2; half > 0; half /= 2) {
    block.phase([&](int t) {
      if (t < half) block.write(t, t, operation(block.read(t, t), block.read(t, t + half)));
    });
  }
  block.phase([&](int t) { numbers(t)[0] = block.read(t, 0); });
}

// The masked softmax of one row of scores, forward and backward, for one thread block. Each direction takes
// one pass over the scores: a thread keeps up to kKept of its columns in registers and reads any further ones
// again.

/// In one step, a thread takes the eight columns of a row that one Philox call decides (philox.h), at
/// distances of 16, so that 16 consecutive threads cover 128 columns. It keeps the columns of its first
/// steps.
constexpr int kLanes = 16, kStep = 8, kKeptSteps = 2, kKept = kKeptSteps * kStep;

/// The row that a block works on.
struct Row {
  int64_t b, h, i;
  int64_t begin, end;  ///< keys that it may see by position and length
  ScoreRule rule;
};

ATTENTIVE_HOST_DEVICE int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

ATTENTIVE_HOST_DEVICE Row row_at(const Call& call, int64_t index) {
  Row row{index / (call.H * call.L), index / call.L % call.H, index % call.L, 0, 0, {}};
  row.begin = call.key_lo(row.i);
  row.end = call.key_hi(row.b, row.i);
  row.rule = call.rule_of(row.b, row.h);
  return row;
}

/// The mathematics of the terms (terms.h).
struct ScalarMath {
  ATTENTIVE_HOST_DEVICE static float product(float a, float b) { return kernels::product(a, b); }
  ATTENTIVE_HOST_DEVICE static float quotient(float x, float by) { return x / by; }
  ATTENTIVE_HOST_DEVICE static float tanh(float x) { return tanhf(x); }
  ATTENTIVE_HOST_DEVICE static float magnitude(float x) { return fabsf(x); }
};

/// The logit of a raw score, and whether it is visible. `tanh` is that of the cap, for the backward pass.
struct Logit {
  bool visible;
  float x, tanh;
};

template <class T>
ATTENTIVE_HOST_DEVICE Logit logit_at(const Call& call, const Row& row, const T* scores, int64_t j) {
  Logit result{false, -INFINITY, 0.0f};
  if (!MaskTerm::in_range(j, row.begin, row.end)) return result;
  if (call.keep && !MaskTerm::shows(*call.keep.at(row.b, row.h, row.i, j))) return result;
  const float bias = call.bias ? *call.bias.as<float>().at(row.b, row.h, row.i, j) : 0.0f;
  if (!BiasTerm::shows(bias)) return result;
  result.visible = true;
  result.x = row.rule.logit<ScalarMath>(
      static_cast<float>(scores[j]), static_cast<float>(call.band.position(row.i) - j),
      static_cast<bool>(call.bias), [&] { return bias; }, result.tanh);
  return result;
}

/// Selects the columns for which a thread draws dropout.
enum class Draws { None, BeyondKept, All };

/// Calls column(j, slot, factor) for every column j of thread t. `slot` is the index at which the thread
/// keeps the column, a constant after unrolling, or -1 if it does not. `factor` is the factor of dropout for
/// the weight, where dropout is drawn.
template <Draws kDraws, class Column>
ATTENTIVE_HOST_DEVICE void for_each_column(const Call& call, const Row& row, int t, int size,
                                           const Column& column) {
  const auto step = [&](int64_t first, int slot) {
    const bool drawn = call.dropout && (kDraws == Draws::All || (kDraws == Draws::BeyondKept && slot < 0));
    PhiloxWords words{};
    if (drawn) {
      words = dropout_words(call.dropout_key, row.b + call.batch_offset, row.h + call.head_offset,
                            call.band.counter_row(row.i), first);
    }
    ATTENTIVE_UNROLL
    for (int half = 0; half < kStep; ++half) {
      const int64_t j = first + half * kLanes;
      if (j >= call.S) continue;
      const bool dropped = drawn && !words.survives(half, call.threshold);
      column(j, slot < 0 ? -1 : slot + half, dropped ? 0.0f : call.survivor_scale);
    }
  };
  const int64_t stride = static_cast<int64_t>(size / kLanes) * (kLanes * kStep);
  int64_t first = static_cast<int64_t>(t / kLanes) * (kLanes * kStep) + t % kLanes;
  ATTENTIVE_UNROLL
  for (int n = 0; n < kKeptSteps; ++n, first += stride) {
    if (first < call.S) step(first, n * kStep);
  }
  for (; first < call.S; first += stride) step(first, -1);
}

/// The tensors of the forward pass, contiguous, (B, H, L, S) of T unless stated otherwise.
struct ForwardRows {
  const void* scores = nullptr;
  void *clean = nullptr, *dropped = nullptr;  ///< either may be null
  float* logsumexp = nullptr;                 ///< (B, H, L); -inf for a row without keys
  float* statistics = nullptr;                ///< (B, H, L, 2): a row's maximum and log_total as in RowEnd
};

template <class T, class Pointer>
ATTENTIVE_HOST_DEVICE T* row_of(Pointer* tensor, int64_t index, int64_t width) {
  return tensor ? static_cast<T*>(tensor) + index * width : nullptr;
}

template <class T, class Block>
ATTENTIVE_HOST_DEVICE void forward_row(Block& block, const Call& call, const ForwardRows& rows,
                                       int64_t index) {
  const Row row = row_at(call, index);
  const T* const scores = row_of<const T>(rows.scores, index, call.S);
  T *const clean = row_of<T>(rows.clean, index, call.S), *const dropped =
                                                             row_of<T>(rows.dropped, index, call.S);
  typename Block::template PerThread<float, kKept> kept;
  typename Block::template PerThread<float, 1> maximum, thread_maximum, total, seen;
  block.phase([&](int t) {
    float top = -INFINITY, sum = 0.0f, any = 0.0f;
    for_each_column<Draws::None>(call, row, t, block.size(), [&](int64_t j, int slot, float) {
      const Logit logit = logit_at(call, row, scores, j);
      if (slot >= 0) kept(t)[slot] = logit.x;
      if (!logit.visible) return;
      any = 1.0f;
      if (logit.x == -INFINITY) return;  // its weight is 0, and -inf - -inf would be NaN
      const float smaller = expf(-fabsf(logit.x - top));
      if (logit.x > top) {
        sum = sum * smaller + 1.0f;
        top = logit.x;
      } else {
        sum += smaller;  // NaN stays NaN
      }
    });
    maximum(t)[0] = thread_maximum(t)[0] = top;
    total(t)[0] = sum;
    seen(t)[0] = any;
  });
  reduce(block, maximum, Larger{});
  reduce(block, seen, Larger{});
  block.phase([&](int t) {
    // A thread without visible columns adds nothing; -inf - -inf would be NaN.
    if (total(t)[0] == 0.0f) return;
    if (thread_maximum(t)[0] != maximum(t)[0]) total(t)[0] *= expf(thread_maximum(t)[0] - maximum(t)[0]);
  });
  reduce(block, total, Sum{});
  block.phase([&](int t) {
    const float top = maximum(t)[0], sink = call.sinks ? call.sinks[row.h] : -INFINITY;
    RowEnd end;
    if (seen(t)[0] != 0.0f) end = end_of_row(top, total(t)[0], sink, top);
    if (t == 0) {
      rows.logsumexp[index] = end.logsumexp();
      rows.statistics[2 * index] = end.maximum;
      rows.statistics[2 * index + 1] = end.log_total();
    }
    for_each_column<Draws::All>(call, row, t, block.size(), [&](int64_t j, int slot, float factor) {
      const float x = slot >= 0 ? kept(t)[slot] : logit_at(call, row, scores, j).x;
      const float weight = (x == -INFINITY ? 0.0f : expf(x - top)) * end.factor;
      if (clean) clean[j] = static_cast<T>(weight);
      if (dropped) dropped[j] = static_cast<T>(factor == 0.0f ? 0.0f : weight * factor);
    });
  });
}

/// The tensors of the backward pass, likewise. All except scores, statistics and grad_scores may be null.
struct BackwardRows {
  const void* scores = nullptr;
  const float* statistics = nullptr;
  const void *grad_clean = nullptr, *grad_dropped = nullptr;
  const float* grad_logsumexp = nullptr;
  void* grad_scores = nullptr;
  float* grad_logits = nullptr;  ///< gradients of the bias, always in float
  float* sink_terms = nullptr;   ///< (B, H, L): contribution of each row to the gradient of its sink
};

template <class T, class Block>
ATTENTIVE_HOST_DEVICE void backward_row(Block& block, const Call& call, const BackwardRows& rows,
                                        int64_t index) {
  struct Pair {
    float weight, gradient, slope;  // slope: derivative of the logit by the scaled score
  };
  const Row row = row_at(call, index);
  const float maximum = rows.statistics[2 * index], log_total = rows.statistics[2 * index + 1];
  const float grad_logsumexp = rows.grad_logsumexp ? rows.grad_logsumexp[index] : 0.0f;
  const T* const scores = row_of<const T>(rows.scores, index, call.S);
  const T* const grad_clean = row_of<const T>(rows.grad_clean, index, call.S);
  const T* const grad_dropped = row_of<const T>(rows.grad_dropped, index, call.S);
  T* const grad_scores = row_of<T>(rows.grad_scores, index, call.S);
  float* const grad_logits = row_of<float>(rows.grad_logits, index, call.S);
  const auto pair_at = [&](int64_t j, float factor) {
    const Logit logit = logit_at(call, row, scores, j);
    Pair pair{0.0f, 0.0f, Softcap::derivative(logit.tanh)};
    if (!logit.visible) return pair;
    const float t = logit.x - maximum - log_total;
    pair.weight = expf(t > 0.0f ? 0.0f : t);
    if (grad_clean) pair.gradient = static_cast<float>(grad_clean[j]);
    if (grad_dropped && factor != 0.0f) pair.gradient += factor * static_cast<float>(grad_dropped[j]);
    return pair;
  };
  typename Block::template PerThread<Pair, kKept> kept;
  typename Block::template PerThread<float, 1> dot;
  block.phase([&](int t) {
    float sum = 0.0f;
    for_each_column<Draws::All>(call, row, t, block.size(), [&](int64_t j, int slot, float factor) {
      const Pair pair = pair_at(j, factor);
      if (slot >= 0) kept(t)[slot] = pair;
      sum += pair.weight * pair.gradient;
    });
    dot(t)[0] = sum;
  });
  reduce(block, dot, Sum{});
  block.phase([&](int t) {
    const float inflow = dot(t)[0] - grad_logsumexp;
    // The gradient of a sink is that of a key with value zero, for which the incoming gradient is 0.
    if (t == 0 && rows.sink_terms)
      rows.sink_terms[index] = -sink_weight(call.sinks[row.h], maximum, log_total) * inflow;
    for_each_column<Draws::BeyondKept>(call, row, t, block.size(), [&](int64_t j, int slot, float factor) {
      const Pair pair = slot >= 0 ? kept(t)[slot] : pair_at(j, factor);
      const float gradient = pair.weight == 0.0f ? 0.0f : pair.weight * (pair.gradient - inflow);
      if (grad_logits) grad_logits[j] = gradient;
      grad_scores[j] = static_cast<T>(gradient * pair.slope * call.rule.scale);
    });
  });
}

}  // namespace attentive::kernels::native_cuda
