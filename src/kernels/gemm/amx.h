#pragma once

// Products of bfloat16 matrices on the CPU's matrix unit (AMX); arguments as in gemm.h.

#include "kernels/simd/matrix.h"

namespace attentive::kernels::cpu {

void amx_multiply(const Matrix<const bf16_t>& lhs, const Rhs<const bf16_t>& rhs, const Matrix<float>& out,
                  bool accumulate);

/// Releases the matrix unit if a product of this thread configured it.
void amx_done();

}  // namespace attentive::kernels::cpu
