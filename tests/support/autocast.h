#pragma once

#include <optional>

#include <ATen/autocast_mode.h>

namespace attentive::test {

/// Runs operations of the CPU under autocast to a dtype until the end of the scope; without one, changes
/// nothing.
class CpuAutocast {
 public:
  explicit CpuAutocast(std::optional<at::ScalarType> type)
      : on_(type.has_value()), before_(at::autocast::get_autocast_dtype(at::kCPU)) {
    if (!on_) return;
    at::autocast::set_autocast_dtype(at::kCPU, *type);
    at::autocast::set_autocast_enabled(at::kCPU, true);
  }
  ~CpuAutocast() {
    if (!on_) return;
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::set_autocast_dtype(at::kCPU, before_);
    at::autocast::clear_cache();
  }
  CpuAutocast(const CpuAutocast&) = delete;
  CpuAutocast& operator=(const CpuAutocast&) = delete;

 private:
  bool on_;
  at::ScalarType before_;
};

}  // namespace attentive::test
