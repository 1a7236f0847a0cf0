#pragma once

#include <ATen/TensorSubclassLikeUtils.h>

#include "core/modes.h"

namespace attentive::kernels {

/// Whether code that reads only the numbers of x misses nothing: forward-mode tangents and tensor subclasses
/// rule that out. An undefined tensor is ordinary.
inline bool is_ordinary(const at::Tensor& x) {
  return !x.defined() || (!at::isTensorSubclassLike(x) && !has_tangent(x));
}

/// Whether vector code may read the memory of x directly as contiguous numbers of dtype `type`. Other
/// layouts and pending signs rule that out, and tensors that are not ordinary.
inline bool is_plain(const at::Tensor& x, at::ScalarType type = at::kFloat) {
  return x.is_cpu() && x.layout() == at::kStrided && x.scalar_type() == type && x.is_contiguous() &&
         !x.is_neg() && is_ordinary(x);
}

}  // namespace attentive::kernels
