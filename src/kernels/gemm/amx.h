#pragma once

// Products of bfloat16 matrices on the CPU's matrix unit (AMX); arguments as in gemm.h.

#include "kernels/simd/matrix.h"

namespace attentive::kernels::cpu {

void amx_multiply(const Matrix<const bf16_t>& lhs, const Rhs<const bf16_t>& rhs, const Matrix<float>& out,
                  bool accumulate);

/// out = weight * x for a weight (outputs, features) that is not in the cache, and x (features, rows), the
/// transposed rows of a projection. Each number of the weight is read once, and fetched ahead of its use. The
/// number of features may be odd.
void amx_multiply_few_rows(const Matrix<const bf16_t>& weight, const Rhs<const bf16_t>& x,
                           const Matrix<float>& out);

/// Releases the matrix unit if a product of this thread configured it.
void amx_done();

}  // namespace attentive::kernels::cpu
