#pragma once

#include <ATen/TensorSubclassLikeUtils.h>

#include "core/modes.h"

namespace attentive::kernels {

/// Whether vector code may read the memory of x directly as contiguous numbers of dtype `type`. Other
/// layouts, pending signs, forward-mode tangents and tensor subclasses rule that out.
inline bool is_plain(const at::Tensor& x, at::ScalarType type = at::kFloat) {
  return x.is_cpu() && x.layout() == at::kStrided && x.scalar_type() == type && x.is_contiguous() &&
         !x.is_neg() && !at::isTensorSubclassLike(x) && !has_tangent(x);
}

}  // namespace attentive::kernels
