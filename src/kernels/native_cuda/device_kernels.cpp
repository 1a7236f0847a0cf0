#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

#include "kernels/native_cuda/masked_softmax.h"

namespace attentive::kernels::native_cuda {
namespace {

void forward(const Call& call, Element type, const ForwardRows& rows) {
  const auto stream = c10::cuda::getCurrentCUDAStream().stream();
  C10_CUDA_CHECK(static_cast<cudaError_t>(launch_forward(call, type, rows, stream)));
}

void backward(const Call& call, Element type, const BackwardRows& rows) {
  const auto stream = c10::cuda::getCurrentCUDAStream().stream();
  C10_CUDA_CHECK(static_cast<cudaError_t>(launch_backward(call, type, rows, stream)));
}

constexpr SoftmaxKernels kKernels = {forward, backward};

}  // namespace

const SoftmaxKernels* device_kernels() {
  return &kKernels;
}

}  // namespace attentive::kernels::native_cuda
