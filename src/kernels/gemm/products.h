#pragma once

// Vector code for products of small matrices, and for packing their operands.

#include "kernels/simd/matrix.h"
#include "kernels/simd/vector_code.h"

namespace attentive::kernels::cpu {

/// The part of a product that is needed under a causal mask or a window. Only the columns [first_column + i,
/// columns + i) of row i have to be written. Row i of the lhs is zero outside the columns [first_inner + i,
/// inner + i), and column j of the rhs is zero from row inner_of_column + j on.
struct Reach {
  static constexpr int64_t kAll = int64_t{1} << 62;
  int64_t columns = kAll, first_column = -kAll;
  int64_t inner = kAll, first_inner = -kAll;
  int64_t inner_of_column = kAll;
};

/// Filled in by native_cpu/simd_<set>.cpp, through native_cpu/tables.h.
struct ProductFunctions {
  /// out = lhs * rhs, or out += lhs * rhs. The function for bfloat16 sums in float32; it is null if the
  /// instruction set has no such product.
  Overloaded<void(const Matrix<const float>& lhs, const Rhs<const float>& rhs, const Matrix<float>& out,
                  bool accumulate, const Reach& reach),
             void(const Matrix<const bf16_t>& lhs, const Rhs<const bf16_t>& rhs, const Matrix<float>& out,
                  bool accumulate, const Reach& reach)>
      multiply;
  /// out += lhs^T * rhs; `reach` counts rows of out.
  void (*add_transposed)(const Matrix<const float>& lhs, const Rhs<const float>& rhs,
                         const Matrix<float>& out, const Reach& reach);

  /// to(c, r) = from(r, c)
  Overloaded<void(const Matrix<const float>& from, const Matrix<float>& to),
             void(const Matrix<const bf16_t>& from, const Matrix<bf16_t>& to),
             void(const Matrix<const bf16_t>& from, const Matrix<float>& to),
             void(const Matrix<const f16_t>& from, const Matrix<float>& to),
             void(const Matrix<const float>& from, const Matrix<bf16_t>& to),
             void(const Matrix<const float>& from, const Matrix<f16_t>& to)>
      transpose;
  /// Transposes into an rhs. If its number of rows is odd, the last pair is completed by zeros.
  Overloaded<void(const Matrix<const float>& from, const Rhs<float>& to),
             void(const Matrix<const bf16_t>& from, const Rhs<float>& to),
             void(const Matrix<const f16_t>& from, const Rhs<float>& to),
             void(const Matrix<const bf16_t>& from, const Rhs<bf16_t>& to)>
      pack_transposed;
  /// Copies rows to an rhs and returns whether every number is finite. If the number of rows is odd, the last
  /// pair is completed by zeros.
  Overloaded<bool(const Matrix<const float>& from, const Rhs<float>& to),
             bool(const Matrix<const bf16_t>& from, const Rhs<float>& to),
             bool(const Matrix<const f16_t>& from, const Rhs<float>& to),
             bool(const Matrix<const bf16_t>& from, const Rhs<bf16_t>& to)>
      pack_rows;

  /// out = x * weight^T for a few rows of x and a weight (outputs, features) that is not in the cache. Both
  /// are contiguous. The function for x in bfloat16 multiplies pairs of numbers; it is null if the
  /// instruction set has no such product.
  Overloaded<void(const Matrix<const float>& x, const Matrix<const float>& weight, const Matrix<float>& out),
             void(const Matrix<const float>& x, const Matrix<const bf16_t>& weight, const Matrix<float>& out),
             void(const Matrix<const float>& x, const Matrix<const f16_t>& weight, const Matrix<float>& out),
             void(const Matrix<const bf16_t>& x, const Matrix<const bf16_t>& weight,
                  const Matrix<float>& out)>
      multiply_few_rows;
  /// out = weight * x for the same weight, and x (features, rows), the transposed rows. The rows of x and of
  /// out (outputs, rows) are whole vectors.
  Overloaded<void(const Matrix<const float>& weight, const Matrix<const float>& x, const Matrix<float>& out),
             void(const Matrix<const bf16_t>& weight, const Matrix<const float>& x, const Matrix<float>& out),
             void(const Matrix<const f16_t>& weight, const Matrix<const float>& x, const Matrix<float>& out)>
      multiply_across;
};

inline const ProductFunctions& products() {
  return *vector_code().products;
}

}  // namespace attentive::kernels::cpu
