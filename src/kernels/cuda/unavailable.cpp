// Stands in for device_kernels.cpp in a build without CUDA code.

#include "kernels/cuda/masked_softmax.h"

namespace attentive::kernels::cuda {

const SoftmaxKernels* device_kernels() {
  return nullptr;
}

}  // namespace attentive::kernels::cuda
