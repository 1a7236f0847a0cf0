#pragma once

// Products of small matrices: by register blocks of the selected instruction set, or for bfloat16 by the
// matrix unit (AMX) if there is one.

#include "kernels/gemm/products.h"

namespace attentive::kernels::cpu {

/// Whether this CPU multiplies bfloat16 faster than float32. If not, callers first widen their operands to
/// float32, which is exact, and multiply in float32. LibTorch's bfloat16 products are fast on the same CPUs
/// only: with AVX-512 alone, oneDNN takes longer than widening and a float32 product.
bool has_gemm_bf16();

/// Whether LibTorch multiplies float16 about as fast as float32, as oneDNN does with AVX512-FP16. Without, it
/// takes ten times as long, and projections are widened.
bool library_has_gemm_f16();

enum class Sums { Begin, Continue };

/// out (M, N) = lhs (M, K) * rhs (K, N), or out += lhs * rhs with Sums::Continue.
void gemm(const Matrix<const float>& lhs, const Rhs<const float>& rhs, const Matrix<float>& out, Sums sums,
          const Reach& reach = {});

/// Overload for bfloat16 with float32 sums, which requires has_gemm_bf16() and an even K. The matrix unit
/// ignores `reach`: its blocks are too large to benefit.
void gemm(const Matrix<const bf16_t>& lhs, const Rhs<const bf16_t>& rhs, const Matrix<float>& out, Sums sums,
          const Reach& reach = {});

/// Releases the matrix unit. Every thread that multiplied must call it before it leaves the parallel region.
void gemm_done();

}  // namespace attentive::kernels::cpu
