#pragma once

// Which (query, key) pairs may attend, for a rectangle of the score matrix.

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

}  // namespace attentive::kernels::reference
