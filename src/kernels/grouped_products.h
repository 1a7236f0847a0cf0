#pragma once

// Shapes of grouped heads, and removal of keys that no query sees, for the backends composed of ATen
// operations.

#include <ATen/core/Tensor.h>

namespace attentive::kernels {

/// (B, H, rows, X) with H = Hkv * group -> (B, Hkv, group * rows, X): one product with keys or values then
/// computes all query heads of a group, and no key is repeated.
at::Tensor stack_groups(const at::Tensor& x, int64_t kv_heads);
at::Tensor unstack_groups(const at::Tensor& x, int64_t heads);

/// Replaces every key or value row that no query may see by zeros, so that NaN or Inf in it cannot reach a
/// product. `visible` is bool and broadcasts to (B, H, L, S).
at::Tensor without_unseen(const at::Tensor& rows, const at::Tensor& visible, int64_t kv_heads);

}  // namespace attentive::kernels
