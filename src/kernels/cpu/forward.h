#pragma once

#include "kernels/cpu/call.h"

namespace attentive::kernels::cpu {

// Where the forward pass reads and writes; strides in elements, last dimension contiguous.
template <class T>
struct ForwardTensors {
  Strided<const T> q, k, v;
  Strided<T> output;
  float* logsumexp;  // (B, H, L), natural logarithm; null: not wanted
};

// Tiled attention with a running softmax. Keys are packed head by head into a buffer of bounded size.
template <class T>
void forward(const Call& call, const ForwardTensors<T>& tensors);

// At most 16 queries: the query heads of a group are rows over one pass through the keys, which are split
// into parts.
template <class T>
void forward_few(const Call& call, const ForwardTensors<T>& tensors);

// Ends a row's running softmax: the factor of its sum of values, and its logsumexp where it is wanted. The
// row has seen a key.
void finish_row(const Call& call, int64_t b, int64_t h, float maximum, float total, float* factor,
                float* logsumexp);

}  // namespace attentive::kernels::cpu
