#pragma once

#include <ATen/TensorSubclassLikeUtils.h>

#include "core/forward_mode.h"

namespace attentive::kernels::cpu {

// Whether vector code may read x as the float32 numbers of its memory: nothing else (layouts, pending signs,
// forward-mode differentiation, subclasses) has a say.
inline bool is_plain(const at::Tensor& x) {
  return x.is_cpu() && x.layout() == at::kStrided && x.scalar_type() == at::kFloat && x.is_contiguous() &&
         !x.is_neg() && !at::isTensorSubclassLike(x) && !has_tangent(x);
}

}  // namespace attentive::kernels::cpu
