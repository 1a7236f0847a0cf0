#pragma once

// The passes over tiles, each of them in the source of its name.

#include <algorithm>

#include "kernels/attention/call.h"
#include "kernels/softmax_end.h"

namespace attentive::kernels::cpu {

// What the backward pass has to know of each row of the forward pass, (B, H, L) each.
struct RowStatistics {
  float* maximum = nullptr;    // as ScoreRule keeps scores; 0 for a row without keys
  float* log_total = nullptr;  // natural logarithm; +inf for a row without keys
};

// `maximum` and `total` as SoftmaxRow leaves them. Dropout's scale is not in the factor.
RowEnd end_of_row(const CpuArguments& call, int64_t b, int64_t h, int64_t i, float maximum, float total);

// The weight of head h's sink in a row of these statistics.
float sink_weight(const CpuArguments& call, int64_t b, int64_t h, float maximum, float log_total);

// Where the forward pass reads and writes; strides in numbers, last dimension contiguous.
template <class T>
struct ForwardTensors {
  Strided<const T> q, k, v;
  Strided<T> output;
  float* logsumexp;          // (B, H, L), natural logarithm; null: not wanted
  RowStatistics statistics;  // for the backward pass; null pointers: not wanted

  // Ends row i: O / ℓ, or zeros for a row without keys, and what else is wanted of the row.
  void write_row(const CpuArguments& call, int64_t b, int64_t h, int64_t i, float maximum, float total,
                 const float* sums) const {
    const RowEnd end = end_of_row(call, b, h, i, maximum, total);
    T* const row = output.at(b, h, i);
    // The sums hold 0 times every value of their tile, and so NaN if a value is not finite.
    if (end.factor == 0.0f) {
      std::fill_n(row, call.Dv, T{0});
    } else {
      elementwise().store_scaled(sums, end.factor * call.survivor_scale, row, call.Dv);
    }
    const int64_t index = (b * call.H + h) * call.L + i;
    if (logsumexp) logsumexp[index] = end.logsumexp();
    if (statistics.maximum) statistics.maximum[index] = end.maximum;
    if (statistics.log_total) statistics.log_total[index] = end.log_total();
  }
};

// Tiled attention with a running softmax. Keys are packed head by head into a buffer of bounded size.
template <class T>
void forward(const CpuArguments& call, const ForwardTensors<T>& tensors);

// At most 16 queries: the query heads of a group are rows over one pass through the keys, which are split
// into parts. It gives no statistics: its scores are summed in another order than those that the backward
// pass recomputes, and a weight must not depend on that.
template <class T>
void few_queries(const CpuArguments& call, const ForwardTensors<T>& tensors);

// Where the backward pass reads and writes; every element of the gradients is written.
template <class T>
struct BackwardTensors {
  Strided<const T> q, k, v, output, grad_output;
  RowStatistics statistics;     // of the forward pass
  const float* grad_logsumexp;  // (B, H, L) or null
  Strided<T> grad_q, grad_k, grad_v;
  float* sink_terms;  // (B, H, L), written: what each row adds to its head's gradient of the sink; or null
};

// Recomputes the weights tile by tile, transposed: rows are keys, so that the row statistics of the forward
// pass are one vector, and no row has to be reduced. Sums are float32.
template <class T>
void backward(const CpuArguments& call, const BackwardTensors<T>& tensors);

template <class T>
struct WeightsTensors {
  Strided<const T> q, k;
  T* weights;    // (B, H, L, S), written; contiguous
  bool dropped;  // after dropout
};

// The softmax rows, for those who ask for the weights. Each row is divided by its own total, not by the
// forward pass's logsumexp: that has the precision of the largest score, a row of weights that of 1.
template <class T>
void weights(const CpuArguments& call, const WeightsTensors<T>& tensors);

}  // namespace attentive::kernels::cpu
