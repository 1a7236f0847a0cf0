#pragma once

#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

namespace attentive {

/// Whether forward-mode differentiation follows this tensor. Code that reads its numbers alone would drop
/// what it carries.
inline bool has_tangent(const at::Tensor& x) {
  return x.defined() && x._fw_grad(/*level=*/0).defined();
}

/// Whether autocast is on for a device. It knows the CPU and CUDA alone, and throws for others.
inline bool is_autocast(at::Device device) {
  return (device.is_cpu() || device.is_cuda()) && at::autocast::is_autocast_enabled(device.type());
}

/// The dtype to which autocast casts numbers of `type`; float64 it leaves alone, as it does everything where
/// it is off.
inline at::ScalarType autocast_type(at::ScalarType type, at::Device device) {
  const bool cast = at::isFloatingType(type) && type != at::kDouble && is_autocast(device);
  return cast ? at::autocast::get_autocast_dtype(device.type()) : type;
}

}  // namespace attentive
