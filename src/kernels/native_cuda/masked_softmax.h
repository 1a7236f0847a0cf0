#pragma once

// Runs the row kernels over all rows of a tensor of scores. The device's implementation is in
// masked_softmax.cu, where the build has one; the tests bring another that runs block by block on the CPU.
//
// nvcc reads this header, and ATen's would take it half a minute.

#include <cstdint>

#include "kernels/native_cuda/softmax_rows.h"

namespace attentive::kernels::native_cuda {

enum class Element { Float32, BFloat16, Float16 };

// Rows of such elements, on the current device.
struct SoftmaxKernels {
  void (*forward)(const KernelArguments& call, Element type, const ForwardRows& rows);
  void (*backward)(const KernelArguments& call, Element type, const BackwardRows& rows);
};

// Null in a build without CUDA code.
const SoftmaxKernels* device_kernels();

// Threads of a block for rows of S columns: shapes alone decide.
constexpr int threads_for(int64_t S) {
  return S <= 512 ? 64 : S <= 4096 ? 256 : 1024;
}

// One block a row, on `stream` (a cudaStream_t). Returns the launch's error, a cudaError_t.
int launch_forward(const KernelArguments& call, Element type, const ForwardRows& rows, void* stream);
int launch_backward(const KernelArguments& call, Element type, const BackwardRows& rows, void* stream);

}  // namespace attentive::kernels::native_cuda
