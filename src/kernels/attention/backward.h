#pragma once

#include "kernels/attention/row_statistics.h"

namespace attentive::kernels::cpu {

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
void backward(const Call& call, const BackwardTensors<T>& tensors);

}  // namespace attentive::kernels::cpu
