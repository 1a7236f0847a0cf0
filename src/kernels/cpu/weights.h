#pragma once

#include "kernels/cpu/call.h"

namespace attentive::kernels::cpu {

template <class T>
struct WeightsTensors {
  Strided<const T> q, k;
  const float* logsumexp;  // (B, H, L), of the forward pass
  T* weights;              // (B, H, L, S), written; contiguous
  bool dropped;            // after dropout
};

// The softmax rows from the logsumexp of the forward pass: a second pass for those who ask for the weights.
template <class T>
void weights(const Call& call, const WeightsTensors<T>& tensors);

}  // namespace attentive::kernels::cpu
