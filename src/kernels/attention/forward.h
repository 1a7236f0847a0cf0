#pragma once

#include "kernels/attention/row_statistics.h"

namespace attentive::kernels::cpu {

// Where the forward pass reads and writes; strides in numbers, last dimension contiguous.
template <class T>
struct ForwardTensors {
  Strided<const T> q, k, v;
  Strided<T> output;
  float* logsumexp;          // (B, H, L), natural logarithm; null: not wanted
  RowStatistics statistics;  // for the backward pass; null pointers: not wanted

  // Ends row i: O / ℓ, or zeros for a row without keys, and what else is wanted of the row.
  void write_row(const Call& call, int64_t b, int64_t h, int64_t i, float maximum, float total,
                 const float* sums) const {
    const RowEnd end = end_of_row(call, b, h, i, maximum, total);
    elementwise().store_scaled(sums, end.factor * call.survivor_scale, output.at(b, h, i), call.Dv);
    const int64_t index = (b * call.H + h) * call.L + i;
    if (logsumexp) logsumexp[index] = end.logsumexp();
    if (statistics.maximum) statistics.maximum[index] = end.maximum;
    if (statistics.log_total) statistics.log_total[index] = end.log_total();
  }
};

// Tiled attention with a running softmax. Keys are packed head by head into a buffer of bounded size.
template <class T>
void forward(const Call& call, const ForwardTensors<T>& tensors);

// At most 16 queries: the query heads of a group are rows over one pass through the keys, which are split
// into parts. It gives no statistics: its scores are summed in another order than those that the backward
// pass recomputes, and a weight must not depend on that.
template <class T>
void few_queries(const Call& call, const ForwardTensors<T>& tensors);

}  // namespace attentive::kernels::cpu
