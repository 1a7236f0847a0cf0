#include "support/device.h"

#include <torch/cuda.h>

namespace bench {

void finish(at::Device device) {
  if (device.is_cuda()) torch::cuda::synchronize(device.index());
}

}  // namespace bench
