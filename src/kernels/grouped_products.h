#pragma once

// Shapes of grouped heads, and keys that no query sees, for the backends that are composed of ATen's
// operations.

#include <ATen/core/Tensor.h>

namespace attentive::kernels {

// (B, H, rows, X) with H = Hkv * group -> (B, Hkv, group * rows, X): a product with keys or values then
// serves the query heads of a group at once, and no key is repeated.
at::Tensor stack_groups(const at::Tensor& x, int64_t kv_heads);
at::Tensor unstack_groups(const at::Tensor& x, int64_t heads);

// Zero in place of every key or value row that no query may see: whatever it held cannot reach a product.
// `visible` is bool and broadcasts to (B, H, L, S).
at::Tensor without_unseen(const at::Tensor& rows, const at::Tensor& visible, int64_t kv_heads);

}  // namespace attentive::kernels
