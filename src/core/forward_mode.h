#pragma once

#include <ATen/core/Tensor.h>

namespace attentive {

/// Whether forward-mode differentiation follows this tensor. Code that reads its numbers alone would drop
/// what it carries.
inline bool has_tangent(const at::Tensor& x) {
  return x.defined() && x._fw_grad(/*level=*/0).defined();
}

}  // namespace attentive
