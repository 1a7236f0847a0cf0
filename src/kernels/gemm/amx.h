#pragma once

// Products of bfloat16 matrices on the CPU's matrix unit (AMX); arguments as in gemm.h.

#include <cstdint>

#include "kernels/simd/simd.h"

namespace attentive::kernels::cpu {

// Whether the compiler, the CPU and the operating system have it; asks the system for it once.
bool has_amx();

void amx_gemm(int64_t m, int64_t n, int64_t k, const bf16_t* a, int64_t lda, const bf16_t* b, int64_t ldb,
              float* c, int64_t ldc, bool accumulate);

// Gives the unit back, if a product of this thread took it.
void amx_done();

}  // namespace attentive::kernels::cpu
