#pragma once

// The pairs (query, key) that may attend, for a rectangle of the score matrix.

#include <string_view>

#include <ATen/core/Tensor.h>

#include <attentive/score/tensors.h>

#include "kernels/problem.h"

namespace attentive::kernels::reference {

/// Rows row0 .. row0 + rows - 1 and columns col0 .. col0 + cols - 1 of the (L, S) score matrix.
struct Rectangle {
  int64_t row0, rows, col0, cols;
};

/// The places of the pairs of a rectangle, as functions of pairs read them; `evaluation` must live as long.
detail::TensorPairs places_of(const Problem& problem, const Rectangle& part,
                              const detail::TensorEvaluation& evaluation);

/// Bool, rank 4, broadcasts to (B, H, rows, cols), true: may attend. Undefined if every pair may.
at::Tensor visible_pairs(const Problem& problem, const Rectangle& part);

/// Cuts `tensor`, of rank 4 and broadcastable to (B, H, L, S), to the rectangle.
at::Tensor cut(const at::Tensor& tensor, const Rectangle& part);

/// Whether some query may see only keys with a finite bias below -1000, which many programs write instead of
/// -inf. A backward pass that recomputes weights from the logsumexp has no digits left for them: with -1e9,
/// every weight of such a row becomes 1. The function misses no such query, but may return true unnecessarily
/// if another mask or causality hides those keys. It takes one pass over the bias, which is head_dim times
/// less work than the attention.
bool has_huge_negative_rows(const Problem& problem);
inline constexpr std::string_view kHugeNegativeRows =
    "it loses the gradients of rows whose bias is finite but below -1000; hide keys with -inf or Mask::hide";

}  // namespace attentive::kernels::reference

// Shapes of grouped heads, and removal of keys that no query sees, for the backends composed of ATen
// operations.

namespace attentive::kernels {

/// (B, H, rows, X) with H = Hkv * group -> (B, Hkv, group * rows, X): one product with keys or values then
/// computes all query heads of a group, and no key is repeated.
at::Tensor stack_groups(const at::Tensor& x, int64_t kv_heads);
at::Tensor unstack_groups(const at::Tensor& x, int64_t heads);

/// Replaces every key or value row that no query may see by zeros, so that NaN or Inf in it cannot reach a
/// product. `visible` is bool and broadcasts to (B, H, L, S).
at::Tensor without_unseen(const at::Tensor& rows, const at::Tensor& visible, int64_t kv_heads);

}  // namespace attentive::kernels
