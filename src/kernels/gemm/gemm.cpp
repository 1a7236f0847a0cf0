#include "kernels/gemm/gemm.h"

#include "kernels/gemm/amx.h"
#include "kernels/simd/selection.h"

namespace attentive::kernels::cpu {
bool has_gemm_bf16() {
  return selection().bf16 != Bf16Product::Widened;
}

bool libtorch_multiplies_bf16() {
#if defined(__x86_64__)
  return simd().width == 16;
#else
  return true;
#endif
}

void gemm(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb, float* c,
          int64_t ldc, bool accumulate) {
  simd().gemm(m, n, k, a, lda, b, ldb, c, ldc, accumulate);
}

void gemm_causal(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb,
                 float* c, int64_t ldc, bool accumulate, Reach reach) {
  simd().gemm_causal(m, n, k, a, lda, b, ldb, c, ldc, accumulate, reach);
}

void gemm(int64_t m, int64_t n, int64_t k, const bf16_t* a, int64_t lda, const bf16_t* b, int64_t ldb,
          float* c, int64_t ldc, bool accumulate) {
  const auto& chosen = selection();
  const auto product = chosen.bf16 == Bf16Product::MatrixUnit ? amx_gemm : chosen.simd->gemm16;
  product(m, n, k, a, lda, b, ldb, c, ldc, accumulate);
}

void gemm_done() {
  if (selection().bf16 == Bf16Product::MatrixUnit) amx_done();
}

}  // namespace attentive::kernels::cpu
