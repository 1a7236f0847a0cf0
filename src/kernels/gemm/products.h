#pragma once

// Vector code for products of small matrices, and for packing their operands.

#include "kernels/simd/matrix.h"
#include "kernels/simd/vector_code.h"

namespace attentive::kernels::cpu {

// What a product under a causal mask or a window may leave out. Of row i, only the columns
// [first_column + i, columns + i) are wanted, the others may stay unwritten, and the lhs is zero outside
// [first_inner + i, inner + i). The rhs is zero in column j from row inner_of_column + j on.
struct Reach {
  static constexpr int64_t kAll = int64_t{1} << 62;
  int64_t columns = kAll, first_column = -kAll;
  int64_t inner = kAll, first_inner = -kAll;
  int64_t inner_of_column = kAll;
};

struct ProductFunctions {
  // out = lhs * rhs, or out += lhs * rhs. That of bfloat16 has sums in float32, takes no account of `reach`, and is
  // null without an instruction for it.
  Overloaded<void(const Matrix<const float>& lhs, const Rhs<const float>& rhs, const Matrix<float>& out,
                  bool accumulate, const Reach& reach),
             void(const Matrix<const bf16_t>& lhs, const Rhs<const bf16_t>& rhs, const Matrix<float>& out,
                  bool accumulate, const Reach& reach)>
      multiply;

  // to(c, r) = from(r, c)
  Overloaded<void(const Matrix<const float>& from, const Matrix<float>& to),
             void(const Matrix<const bf16_t>& from, const Matrix<bf16_t>& to)>
      transpose;
  // The same, to an rhs; the pair of an odd last row of it is zero.
  Overloaded<void(const Matrix<const float>& from, const Rhs<float>& to),
             void(const Matrix<const bf16_t>& from, const Rhs<float>& to),
             void(const Matrix<const bf16_t>& from, const Rhs<bf16_t>& to)>
      pack_transposed;
  // Rows as those of an rhs; the pair of an odd last row is zero. Says whether every number is finite.
  Overloaded<bool(const Matrix<const float>& from, const Rhs<float>& to),
             bool(const Matrix<const bf16_t>& from, const Rhs<float>& to),
             bool(const Matrix<const bf16_t>& from, const Rhs<bf16_t>& to)>
      pack_rows;

  // out = x * weight^T for a few rows of x and a weight (outputs, features) that comes from memory. Rows of x and of
  // the weight are contiguous.
  Overloaded<void(const Matrix<const float>& x, const Matrix<const float>& weight, const Matrix<float>& out),
             void(const Matrix<const float>& x, const Matrix<const bf16_t>& weight, const Matrix<float>& out)>
      multiply_few_rows;
};

inline const ProductFunctions& products() {
  return *vector_code().products;
}

}  // namespace attentive::kernels::cpu
