#include "kernels/native_cuda/masked_softmax.h"

int main() {
  const auto* kernels = attentive::kernels::native_cuda::device_kernels();
  return kernels && kernels->forward && kernels->backward ? 0 : 1;
}
