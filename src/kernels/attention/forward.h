#pragma once

#include "kernels/attention/row_statistics.h"

namespace attentive::kernels::cpu {

// Where the forward pass reads and writes; strides in elements, last dimension contiguous.
template <class T>
struct ForwardTensors {
  Strided<const T> q, k, v;
  Strided<T> output;
  float* logsumexp;          // (B, H, L), natural logarithm; null: not wanted
  RowStatistics statistics;  // for the backward pass; null pointers: not wanted
};

// Tiled attention with a running softmax. Keys are packed head by head into a buffer of bounded size.
template <class T>
void forward(const Call& call, const ForwardTensors<T>& tensors);

// At most 16 queries: the query heads of a group are rows over one pass through the keys, which are split
// into parts. It gives no statistics: its scores are summed in another order than those that the backward
// pass recomputes, and a weight must not depend on that.
template <class T>
void forward_few(const Call& call, const ForwardTensors<T>& tensors);

}  // namespace attentive::kernels::cpu
