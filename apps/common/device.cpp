#include "common/device.h"

#include <c10/util/Exception.h>
#include <torch/cuda.h>

namespace apps {

c10::Device choose_device(const std::string& name) {
  const bool there = name != "cpu" && torch::cuda::is_available();
  TORCH_CHECK_VALUE(name != "cuda" || there, "expected a CUDA device for --device cuda, got none");
  return there ? c10::Device(c10::kCUDA, 0) : c10::Device(c10::kCPU);
}

}  // namespace apps
