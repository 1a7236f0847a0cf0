#pragma once

#include "kernels/cpu/call.h"

namespace attentive::kernels::cpu {

// Where the backward pass reads and writes. The gradients are float32, start at zero and are added to.
template <class T>
struct BackwardTensors {
  Strided<const T> q, k, v, output, grad_output;
  const float* logsumexp;       // (B, H, L)
  const float* grad_logsumexp;  // (B, H, L) or null
  Strided<float> grad_q;        // one of `splits` copies; the others lie `grad_q_copy` elements apart
  Strided<float> grad_k, grad_v;
  int64_t splits;
  int64_t grad_q_copy;
  float* delta;  // (B, H, L), written: sum of grad_output * output, minus grad_logsumexp
};

// How many copies of grad_q `backward` wants, so that few heads still make work for many threads. Shapes
// decide alone.
int64_t backward_splits(const Call& call);

// Recomputes the weights tile by tile, transposed: rows are keys, so that the row statistics of the forward
// pass are one vector, and no row has to be reduced.
template <class T>
void backward(const Call& call, const BackwardTensors<T>& tensors);

}  // namespace attentive::kernels::cpu
