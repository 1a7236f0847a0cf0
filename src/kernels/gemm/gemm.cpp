#include "kernels/gemm/gemm.h"

#include "kernels/gemm/amx.h"
#include "kernels/simd/vector_code.h"

namespace attentive::kernels::cpu {

bool has_gemm_bf16() {
  return selection().bf16 != Bf16Product::Widened;
}

bool library_has_gemm_f16() {
  return selection().library_f16;
}

void gemm(const Matrix<const float>& lhs, const Rhs<const float>& rhs, const Matrix<float>& out, Sums sums,
          const Reach& reach) {
  products().multiply(lhs, rhs, out, sums == Sums::Continue, reach);
}

void gemm(const Matrix<const bf16_t>& lhs, const Rhs<const bf16_t>& rhs, const Matrix<float>& out, Sums sums,
          const Reach& reach) {
  if (selection().bf16 == Bf16Product::MatrixUnit) {
    amx_multiply(lhs, rhs, out, sums == Sums::Continue);
  } else {
    products().multiply(lhs, rhs, out, sums == Sums::Continue, reach);
  }
}

void gemm_done() {
  if (selection().bf16 == Bf16Product::MatrixUnit) amx_done();
}

}  // namespace attentive::kernels::cpu
