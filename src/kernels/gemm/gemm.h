#pragma once

// Products of small matrices: register blocks of the instruction set at hand, and for bfloat16 the matrix
// unit (AMX) where there is one.

#include "kernels/gemm/products.h"

namespace attentive::kernels::cpu {

// Whether this CPU multiplies bfloat16 faster than float32. Where it does not, callers widen their operands
// to float32 first, which is exact, and use that product. LibTorch's own products run at a useful rate on the
// same CPUs: with AVX-512 alone, oneDNN's take longer than widening and float32's.
bool has_gemm_bf16();

enum class Sums { Begin, Continue };

// out (M, N) = lhs (M, K) * rhs (K, N), or out += lhs * rhs where the sums continue.
void gemm(const Matrix<const float>& lhs, const Rhs<const float>& rhs, const Matrix<float>& out, Sums sums,
          const Reach& reach = {});

// The same for bfloat16 with float32 sums, where has_gemm_bf16(). K is even. The blocks of the matrix unit are too
// large to leave out what `reach` allows.
void gemm(const Matrix<const bf16_t>& lhs, const Rhs<const bf16_t>& rhs, const Matrix<float>& out, Sums sums,
          const Reach& reach = {});

// Releases the matrix unit; every thread that multiplied calls it before it leaves the parallel region.
void gemm_done();

}  // namespace attentive::kernels::cpu
