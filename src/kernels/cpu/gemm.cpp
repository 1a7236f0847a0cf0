#include "kernels/cpu/gemm.h"

#include "kernels/cpu/amx.h"
#include "kernels/cpu/brgemm.h"

namespace attentive::kernels::cpu {
namespace {

bool use_amx() {
  static const bool result = simd().may_use_amx && has_amx();
  return result;
}

}  // namespace

bool has_gemm_f32() {
  return simd().gemm || has_brgemm_f32();
}

bool has_gemm_bf16() {
  return use_amx() || has_brgemm_bf16();
}

void gemm(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb, float* c,
          int64_t ldc, bool accumulate) {
  if (const auto own = simd().gemm) {
    own(m, n, k, a, lda, b, ldb, c, ldc, accumulate);
  } else {
    brgemm(m, n, k, a, lda, b, ldb, c, ldc, accumulate);
  }
}

void gemm(int64_t m, int64_t n, int64_t k, const bf16_t* a, int64_t lda, const bf16_t* b, int64_t ldb,
          float* c, int64_t ldc, bool accumulate) {
  if (use_amx()) {
    amx_gemm(m, n, k, a, lda, b, ldb, c, ldc, accumulate);
  } else {
    brgemm(m, n, k, a, lda, b, ldb, c, ldc, accumulate);
  }
}

void gemm_done() {
  if (use_amx()) amx_done();
  brgemm_done();
}

}  // namespace attentive::kernels::cpu
