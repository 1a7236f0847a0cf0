#pragma once

// Products of small matrices: register blocks of the instruction set at hand, and for bfloat16 the matrix
// unit (AMX) where there is one.

#include <cstdint>

#include "kernels/simd/simd.h"

namespace attentive::kernels::cpu {

// Whether this CPU multiplies bfloat16 faster than float32. Where it does not, callers widen their operands
// to float32 first, which is exact, and use that product.
bool has_gemm_bf16();

// Whether LibTorch's own products of bfloat16 run on this CPU at a useful rate (oneDNN: AVX-512, or ARM).
bool libtorch_multiplies_bf16();

// C (M, N) = A (M, K) B (K, N), or += with `accumulate`; row-major, with the given row strides.
void gemm(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb, float* c,
          int64_t ldc, bool accumulate);

void gemm_causal(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb,
                 float* c, int64_t ldc, bool accumulate, Reach reach);

// The same for bfloat16 with float32 sums, where has_gemm_bf16(). K is even and B is packed in pairs of rows:
//   b[(k / 2) * ldb * 2 + n * 2 + k % 2]
void gemm(int64_t m, int64_t n, int64_t k, const bf16_t* a, int64_t lda, const bf16_t* b, int64_t ldb,
          float* c, int64_t ldc, bool accumulate);

// The blocks of the matrix unit are too large to leave out much.
inline void gemm_causal(int64_t m, int64_t n, int64_t k, const bf16_t* a, int64_t lda, const bf16_t* b,
                        int64_t ldb, float* c, int64_t ldc, bool accumulate, Reach) {
  gemm(m, n, k, a, lda, b, ldb, c, ldc, accumulate);
}

// Releases the matrix unit; every thread that multiplied calls it before it leaves the parallel region.
void gemm_done();

}  // namespace attentive::kernels::cpu
