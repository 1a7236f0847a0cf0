#pragma once

// Products of small matrices, and packing their operands: by register blocks of the selected instruction
// set, or for bfloat16 by the matrix unit (AMX) if there is one. Functions here are always inlined, as in
// matrix.h.

#include "kernels/simd/matrix.h"
#include "kernels/simd/vector_code.h"

namespace attentive::kernels::cpu {

/// The part of a product that is needed under a causal mask or a window. Only the columns [first_column + i,
/// columns + i) of row i have to be written. Row i of the lhs is zero outside the columns [first_inner + i,
/// inner + i), and column j of the rhs is zero from row inner_of_column + j on.
struct BandBounds {
  static constexpr int64_t kAll = int64_t{1} << 62;
  int64_t columns = kAll, first_column = -kAll;
  int64_t inner = kAll, first_inner = -kAll;
  int64_t inner_of_column = kAll;
};

template <class From, class To>
using Transpose = void(const Matrix<const From>& from, const Matrix<To>& to);
template <class Result, class From, class To>
using Pack = Result(const Matrix<const From>& from, const Rhs<To>& to);
template <class Left, class Right>
using Product = void(const Matrix<const Left>& left, const Matrix<const Right>& right,
                     const Matrix<float>& out);

/// Filled in for each instruction set by native_cpu/tables.h.
struct ProductFunctions {
  /// out = lhs * rhs, or out += lhs * rhs. The function for bfloat16 sums in float32; it is null if the
  /// instruction set has no such product.
  Overloaded<void(const Matrix<const float>& lhs, const Rhs<const float>& rhs, const Matrix<float>& out,
                  bool accumulate, const BandBounds& reach),
             void(const Matrix<const bf16_t>& lhs, const Rhs<const bf16_t>& rhs, const Matrix<float>& out,
                  bool accumulate, const BandBounds& reach)>
      multiply;
  /// out += lhs^T * rhs; `reach` counts rows of out.
  void (*add_transposed)(const Matrix<const float>& lhs, const Rhs<const float>& rhs,
                         const Matrix<float>& out, const BandBounds& reach);

  /// to(c, r) = from(r, c)
  Overloaded<Transpose<float, float>, Transpose<bf16_t, bf16_t>, Transpose<bf16_t, float>,
             Transpose<f16_t, float>, Transpose<float, bf16_t>, Transpose<float, f16_t>>
      transpose;
  /// Transposes into an rhs. If its number of rows is odd, the last pair is completed by zeros.
  Overloaded<Pack<void, float, float>, Pack<void, bf16_t, float>, Pack<void, f16_t, float>,
             Pack<void, bf16_t, bf16_t>>
      pack_transposed;
  /// Copies rows to an rhs and returns whether every number is finite. If the number of rows is odd, the last
  /// pair is completed by zeros.
  Overloaded<Pack<bool, float, float>, Pack<bool, bf16_t, float>, Pack<bool, f16_t, float>,
             Pack<bool, bf16_t, bf16_t>>
      pack_rows;

  /// out = x * weight^T for a few rows of x and a weight (outputs, features) that is not in the cache. Both
  /// are contiguous. The function for x in bfloat16 multiplies pairs of numbers; it is null if the
  /// instruction set has no such product.
  Overloaded<Product<float, float>, Product<float, bf16_t>, Product<float, f16_t>, Product<bf16_t, bf16_t>>
      multiply_few_rows;
  /// out = weight * x for the same weight, and x (features, rows), the transposed rows. The rows of x and of
  /// out (outputs, rows) are whole vectors.
  Overloaded<Product<float, float>, Product<bf16_t, float>, Product<f16_t, float>> multiply_across;
};

inline const ProductFunctions& products() {
  return *vector_code().products;
}

/// Whether this CPU multiplies bfloat16 faster than float32. If not, callers first widen their operands to
/// float32, which is exact, and multiply in float32. LibTorch's bfloat16 products are fast on the same CPUs
/// only: with AVX-512 alone, oneDNN takes longer than widening and a float32 product.
ATTENTIVE_ALWAYS_INLINE bool has_gemm_bf16() {
  return selection().bf16 != Bf16Product::Widened;
}

/// Whether LibTorch multiplies float16 about as fast as float32, as oneDNN does with AVX512-FP16. Without, it
/// takes ten times as long, and projections are widened.
ATTENTIVE_ALWAYS_INLINE bool library_has_gemm_f16() {
  return selection().library_f16;
}

/// Products of bfloat16 matrices on the matrix unit.
void amx_multiply(const Matrix<const bf16_t>& lhs, const Rhs<const bf16_t>& rhs, const Matrix<float>& out,
                  bool accumulate);

/// out = weight * x for a weight (outputs, features) that is not in the cache, and x (features, rows), the
/// transposed rows of a projection, on the matrix unit. Each number of the weight is read once, and fetched
/// ahead of its use. The number of features may be odd.
void amx_multiply_few_rows(const Matrix<const bf16_t>& weight, const Rhs<const bf16_t>& x,
                           const Matrix<float>& out);

/// Configures every register of the matrix unit for 16 rows of 64 bytes.
void amx_begin();

/// Releases the matrix unit if a product of this thread configured it.
void amx_done();

enum class Sums { Begin, Continue };

/// out (M, N) = lhs (M, K) * rhs (K, N), or out += lhs * rhs with Sums::Continue.
ATTENTIVE_ALWAYS_INLINE void gemm(const Matrix<const float>& lhs, const Rhs<const float>& rhs,
                                  const Matrix<float>& out, Sums sums, const BandBounds& reach = {}) {
  products().multiply(lhs, rhs, out, sums == Sums::Continue, reach);
}

/// Overload for bfloat16 with float32 sums, which requires has_gemm_bf16() and an even K. The matrix unit
/// ignores `reach`: its blocks are too large to benefit.
ATTENTIVE_ALWAYS_INLINE void gemm(const Matrix<const bf16_t>& lhs, const Rhs<const bf16_t>& rhs,
                                  const Matrix<float>& out, Sums sums, const BandBounds& reach = {}) {
  if (selection().bf16 == Bf16Product::MatrixUnit) return amx_multiply(lhs, rhs, out, sums == Sums::Continue);
  products().multiply(lhs, rhs, out, sums == Sums::Continue, reach);
}

/// Releases the matrix unit. Every thread that multiplied must call it before it leaves the parallel region.
ATTENTIVE_ALWAYS_INLINE void gemm_done() {
  if (selection().bf16 == Bf16Product::MatrixUnit) amx_done();
}

}  // namespace attentive::kernels::cpu
