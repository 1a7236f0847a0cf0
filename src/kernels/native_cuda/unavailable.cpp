// Stands in for device_kernels.cpp in a build without CUDA code.

#include "kernels/native_cuda/masked_softmax.h"

namespace attentive::kernels::native_cuda {

const SoftmaxKernels* device_kernels() {
  return nullptr;
}

}  // namespace attentive::kernels::native_cuda
