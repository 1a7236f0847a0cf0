#pragma once

// Runs the row kernels over all rows of a tensor of scores. The implementation for GPUs, in builds that have
// one, is masked_softmax.cu; the tests use another one that runs block by block on the CPU.
//
// It does not include ATen, whose headers would cost nvcc half a minute.

#include <cstdint>

#include "kernels/native_cuda/softmax_rows.h"

namespace attentive::kernels::native_cuda {

/// The functions that run the row kernels for rows of such elements, on the current device.
struct SoftmaxKernels {
  void (*forward)(const Call& call, Element type, const ForwardRows& rows);
  void (*backward)(const Call& call, Element type, const BackwardRows& rows);
};

/// Null in a build without CUDA code.
const SoftmaxKernels* device_kernels();

/// The number of threads of a block for rows of S columns; it depends on the shape alone.
constexpr int threads_for(int64_t S) {
  return S <= 512 ? 64 : S <= 4096 ? 256 : 1024;
}

/// Launches one block per row on `stream`, a cudaStream_t. Returns the error of the launch, a cudaError_t.
int launch_forward(const Call& call, Element type, const ForwardRows& rows, void* stream);
int launch_backward(const Call& call, Element type, const BackwardRows& rows, void* stream);

}  // namespace attentive::kernels::native_cuda
