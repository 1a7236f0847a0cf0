#pragma once

#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

namespace attentive {

/// Whether x has a tangent of forward-mode differentiation, which code that only reads the numbers of x would
/// lose.
inline bool has_tangent(const at::Tensor& x) {
  return x.defined() && x._fw_grad(/*level=*/0).defined();
}

/// Whether autocast is enabled for a device. Only the CPU and CUDA are asked, because LibTorch throws for
/// other devices.
inline bool is_autocast(at::Device device) {
  return (device.is_cpu() || device.is_cuda()) && at::autocast::is_autocast_enabled(device.type());
}

/// The dtype to which autocast casts numbers of `type`: `type` itself for float64, or if autocast is off.
inline at::ScalarType autocast_type(at::ScalarType type, at::Device device) {
  const bool cast = at::isFloatingType(type) && type != at::kDouble && is_autocast(device);
  return cast ? at::autocast::get_autocast_dtype(device.type()) : type;
}

}  // namespace attentive
