#pragma once

#include <optional>

#include <ATen/autocast_mode.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/ScalarTypeToTypeMeta.h>

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

/// Sets the default dtype, as `torch.set_default_dtype` does, for the lifetime of this object.
class DefaultDtype {
 public:
  explicit DefaultDtype(c10::ScalarType type) : previous_(c10::get_default_dtype()) {
    c10::set_default_dtype(c10::scalarTypeToTypeMeta(type));
  }
  ~DefaultDtype() { c10::set_default_dtype(previous_); }
  DefaultDtype(const DefaultDtype&) = delete;
  DefaultDtype& operator=(const DefaultDtype&) = delete;

 private:
  caffe2::TypeMeta previous_;
};

}  // namespace attentive::test
