#pragma once

// Products of small matrices, by the best code this CPU has: register blocks of AVX-512 for float32, the
// matrix unit (AMX) for bfloat16, and LibTorch's exported brgemm everywhere else.

#include <cstdint>

#include "kernels/cpu/simd.h"

namespace attentive::kernels::cpu {

// Whether there is such a product on this CPU; tried once.
bool has_gemm_f32();
bool has_gemm_bf16();

// C (M, N) = A (M, K) B (K, N), or += with `accumulate`; row-major with the given distances between rows.
void gemm(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb, float* c,
          int64_t ldc, bool accumulate);

// The same for bf16 with float32 sums. K is even and B lies in pairs of rows: b[(k / 2) * ldb * 2 + n * 2 + k
// % 2].
void gemm(int64_t m, int64_t n, int64_t k, const bf16_t* a, int64_t lda, const bf16_t* b, int64_t ldb,
          float* c, int64_t ldc, bool accumulate);

// Gives the matrix unit back; called by every thread that multiplied, before it leaves the parallel region.
void gemm_done();

}  // namespace attentive::kernels::cpu
