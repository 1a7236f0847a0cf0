#pragma once

// Which (query, key) pairs may attend, for a rectangle of the score matrix.

#include <string_view>

#include "kernels/problem.h"

namespace attentive::kernels::reference {

// Rows row0 .. row0 + rows - 1 and columns col0 .. col0 + cols - 1 of the (L, S) score matrix.
struct Rectangle {
  int64_t row0, rows, col0, cols;
};

// Bool, rank 4, broadcasts to (B, H, rows, cols), true: may attend. Undefined if every pair may.
at::Tensor visible_pairs(const Problem& problem, const Rectangle& part);

// `tensor` of rank 4 that broadcasts to (B, H, L, S), cut to the rectangle.
at::Tensor cut(const at::Tensor& tensor, const Rectangle& part);

// True if some query may see nothing but keys with a finite bias below -1000, which many programs write for
// -inf. A backward pass that knows a row of weights by its log-sum-exp has no digits left for them there:
// beside -1e9 every weight of such a row comes out as 1. Never false where it matters; true too often where
// another mask or causality stands beside the bias. One pass over the bias, head_dim times less than the
// attention.
bool has_huge_negative_rows(const Problem& problem);
inline constexpr std::string_view kHugeNegativeRows =
    "it loses the gradients of rows whose bias is finite but below -1000; hide keys with -inf or Mask::hide";

}  // namespace attentive::kernels::reference
