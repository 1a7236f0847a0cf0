#include "kernels/cpu/gemm.h"

#include "kernels/cpu/amx.h"

namespace attentive::kernels::cpu {
namespace {

bool use_amx() {
  static const bool result = simd().may_use_amx && has_amx();
  return result;
}

// Zen 4 and 5 multiply bfloat16 pairs (vdpbf16ps) at the rate of float32's FMA, hence twice the numbers.
// Intel's cores take several cycles for it: on Sapphire Rapids a product by it runs at half float32's rate.
bool has_fast_pairs() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return __builtin_cpu_is("amd");
#else
  return false;
#endif
}

bool use_pairs() {
  static const bool result = simd().gemm16 && has_fast_pairs();
  return result;
}

}  // namespace

bool has_gemm_bf16() {
  return use_amx() || use_pairs();
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

void gemm(int64_t m, int64_t n, int64_t k, const bf16_t* a, int64_t lda, const bf16_t* b, int64_t ldb,
          float* c, int64_t ldc, bool accumulate) {
  const auto product = use_amx() ? amx_gemm : simd().gemm16;
  product(m, n, k, a, lda, b, ldb, c, ldc, accumulate);
}

void gemm_done() {
  if (use_amx()) amx_done();
}

}  // namespace attentive::kernels::cpu
