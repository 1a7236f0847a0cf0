#pragma once

#include <ATen/core/Tensor.h>

namespace attentive {

/// Runs this thread's matrix products in a lower precision during the guard's lifetime, as Python's
/// `torch.autocast` does. Without a type (nullopt), it changes nothing.
///
///   {
///     attentive::Autocast autocast(at::kCPU, at::kBFloat16);
///     loss = loss_of(model->forward(x), y);
///   }
///   loss.backward();  // outside
class Autocast {
 public:
  /// Throws c10::ValueError for a device other than CPU and CUDA, or for a type other than bfloat16 and
  /// float16.
  Autocast(at::DeviceType device, std::optional<at::ScalarType> type);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  at::DeviceType device_;
  bool active_;
  bool was_enabled_ = false;
  at::ScalarType previous_ = at::kBFloat16;
};

}  // namespace attentive
