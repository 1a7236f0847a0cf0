#pragma once

#include <ATen/autocast_mode.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

namespace attentive {

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
