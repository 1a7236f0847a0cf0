#pragma once

// LibTorch's tile product (oneDNN's kernels, made at run time for the CPU at hand), on CPUs that have it;
// arguments as in gemm.h.

#include <cstdint>

#include "kernels/cpu/simd.h"

namespace attentive::kernels::cpu {

// Whether this CPU and this LibTorch have the product; tried once.
bool has_brgemm_f32();
bool has_brgemm_bf16();

void brgemm(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb,
            float* c, int64_t ldc, bool accumulate);
void brgemm(int64_t m, int64_t n, int64_t k, const bf16_t* a, int64_t lda, const bf16_t* b, int64_t ldb,
            float* c, int64_t ldc, bool accumulate);

// Gives the matrix unit back, if a product of this thread took it.
void brgemm_done();

}  // namespace attentive::kernels::cpu
