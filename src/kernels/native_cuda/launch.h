#pragma once

// The border between masked_softmax.cu, which nvcc compiles and which knows no ATen (its headers take nvcc
// half a minute), and device_kernels.cpp, which knows no CUDA C++.

#include <cstdint>

#include "kernels/native_cuda/softmax_rows.h"

namespace attentive::kernels::native_cuda {

enum class Element { Float32, BFloat16, Float16 };

// Contiguous tensors of `Element`s (B, H, L, S) and of floats (B, H, L), statistics (B, H, L, 2). See
// masked_softmax.h for which may be null.
struct ForwardRows {
  const void* scores = nullptr;
  void* clean = nullptr;
  void* dropped = nullptr;
  float* logsumexp = nullptr;
  float* statistics = nullptr;
};

struct BackwardRows {
  const void* scores = nullptr;
  const float* statistics = nullptr;
  const void* grad_clean = nullptr;
  const void* grad_dropped = nullptr;
  const float* grad_logsumexp = nullptr;
  void* grad_scores = nullptr;
  float* grad_logits = nullptr;
  float* sink_terms = nullptr;
};

// One block of `threads` threads a row, on the current device and on `stream` (a cudaStream_t). Returns the
// launch's error, a cudaError_t.
int launch_forward(const SoftmaxCall& call, Element type, const ForwardRows& rows, int threads, void* stream);
int launch_backward(const SoftmaxCall& call, Element type, const BackwardRows& rows, int threads,
                    void* stream);

}  // namespace attentive::kernels::native_cuda
