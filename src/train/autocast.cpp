#include <ATen/autocast_mode.h>

#include <attentive/train/autocast.h>

namespace attentive {

Autocast::Autocast(at::DeviceType device, std::optional<at::ScalarType> type)
    : device_(device), active_(type.has_value()) {
  if (!active_) return;
  TORCH_CHECK_VALUE(device == at::kCPU || device == at::kCUDA,
                    "Autocast: expected the device CPU or CUDA, got ", device);
  TORCH_CHECK_VALUE(*type == at::kBFloat16 || *type == at::kHalf,
                    "Autocast: expected the type BFloat16 or Half, got ", *type);
  was_enabled_ = at::autocast::is_autocast_enabled(device_);
  previous_ = at::autocast::get_autocast_dtype(device_);
  at::autocast::set_autocast_enabled(device_, true);
  at::autocast::set_autocast_dtype(device_, *type);
  at::autocast::increment_nesting();
}

Autocast::~Autocast() {
  if (!active_) return;
  // The outermost scope drops the cached casts of weights, because the optimizer is about to change them.
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, was_enabled_);
  at::autocast::set_autocast_dtype(device_, previous_);
}

}  // namespace attentive
