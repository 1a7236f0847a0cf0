#pragma once

#include "kernels/attention/call.h"

namespace attentive::kernels::cpu {

template <class T>
struct WeightsTensors {
  Strided<const T> q, k;
  T* weights;    // (B, H, L, S), written; contiguous
  bool dropped;  // after dropout
};

// The softmax rows, for those who ask for the weights. Each row is divided by its own total, not by the
// forward pass's logsumexp: that has the precision of the largest score, a row of weights that of 1.
template <class T>
void weights(const Call& call, const WeightsTensors<T>& tensors);

}  // namespace attentive::kernels::cpu
