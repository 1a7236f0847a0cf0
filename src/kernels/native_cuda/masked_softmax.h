#pragma once

// Runs the row kernels over all rows of a tensor of scores. The device's implementation is in
// masked_softmax.cu, where the build has one; the tests bring another that runs block by block on the CPU.

#include <ATen/core/Tensor.h>

#include "kernels/native_cuda/softmax_rows.h"

namespace attentive::kernels::native_cuda {

struct ForwardTensors {
  at::Tensor scores;          // (B, H, L, S), contiguous
  at::Tensor clean, dropped;  // the same, either may be undefined
  at::Tensor logsumexp;       // (B, H, L), float
  at::Tensor statistics;      // (B, H, L, 2), float: for the backward pass
};

struct BackwardTensors {
  at::Tensor scores, statistics;
  at::Tensor grad_clean, grad_dropped, grad_logsumexp;  // each may be undefined
  at::Tensor grad_scores;                               // (B, H, L, S)
  at::Tensor grad_logits;                               // the same as float; may be undefined
  at::Tensor sink_terms;                                // (B, H, L), float; may be undefined
};

struct SoftmaxKernels {
  void (*forward)(const SoftmaxCall& call, const ForwardTensors& tensors);
  void (*backward)(const SoftmaxCall& call, const BackwardTensors& tensors);
};

// Null in a build without CUDA code.
const SoftmaxKernels* device_kernels();

// Threads of a block for rows of S columns: shapes alone decide.
constexpr int threads_for(int64_t S) {
  return S <= 512 ? 64 : S <= 4096 ? 256 : 1024;
}

}  // namespace attentive::kernels::native_cuda
