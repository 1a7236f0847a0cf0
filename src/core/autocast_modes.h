#pragma once

// The modes and properties of tensors that change what code on their numbers may do.

#include <ATen/TensorSubclassLikeUtils.h>
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

/// Whether code that reads only the numbers of x misses nothing: forward-mode tangents and tensor subclasses
/// rule that out. So it is for an undefined tensor.
inline bool is_not_subclass(const at::Tensor& x) {
  return !x.defined() || (!at::isTensorSubclassLike(x) && !has_tangent(x));
}

/// Whether vector code may read the memory of x directly as contiguous numbers of dtype `type`. Other
/// layouts and pending signs rule that out, and tangents and subclasses.
inline bool is_contiguous_cpu(const at::Tensor& x, at::ScalarType type = at::kFloat) {
  return x.is_cpu() && x.layout() == at::kStrided && x.scalar_type() == type && x.is_contiguous() &&
         !x.is_neg() && is_not_subclass(x);
}

}  // namespace attentive
