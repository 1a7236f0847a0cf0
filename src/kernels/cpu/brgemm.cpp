#include "kernels/cpu/brgemm.h"

#include <algorithm>

#include <ATen/native/CPUBlas.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Exception.h>

namespace attentive::kernels::cpu {
namespace {

const at::BFloat16* as_bf16(const bf16_t* x) {
  return reinterpret_cast<const at::BFloat16*>(x);
}

// oneDNN throws where the CPU lacks the instruction set, or where the user switched it off.
template <class Try>
bool works(Try&& product) {
  try {
    product();
    return true;
  } catch (const c10::Error&) {
    return false;
  }
}

}  // namespace

bool has_brgemm_f32() {
  static const bool result = works([] {
    const float a[4] = {1, 2, 3, 4}, b[4] = {1, 0, 0, 1};
    float c[4];
    brgemm(2, 2, 2, a, 2, b, 2, c, 2, false);
    brgemm_done();
    TORCH_CHECK(c[0] == 1 && c[3] == 4);
  });
  return result;
}

bool has_brgemm_bf16() {
  static const bool result = works([] {
    const bf16_t one = 0x3f80;
    const bf16_t a[4] = {one, 0, 0, one}, b[4] = {one, 0, 0, one};  // b in pairs: the unit matrix
    float c[4];
    brgemm(2, 2, 2, a, 2, b, 2, c, 2, false);
    brgemm_done();
    TORCH_CHECK(c[0] == 1 && c[1] == 0 && c[2] == 0 && c[3] == 1);
  });
  return result;
}

void brgemm(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb,
            float* c, int64_t ldc, bool accumulate) {
  // Each part of the inner dimension is summed by itself and then added, as in simd_gemm.h.
  constexpr int64_t kPart = 128;
  for (int64_t p = 0; p < k; p += kPart) {
    at::native::cpublas::brgemm(m, n, std::min(kPart, k - p), lda, ldb, ldc, accumulate || p > 0, a + p,
                                b + p * ldb, c, /*is_vnni=*/false);
  }
}

void brgemm(int64_t m, int64_t n, int64_t k, const bf16_t* a, int64_t lda, const bf16_t* b, int64_t ldb,
            float* c, int64_t ldc, bool accumulate) {
  at::native::cpublas::brgemm(m, n, k, lda, ldb, ldc, accumulate, as_bf16(a), as_bf16(b), c,
                              /*is_vnni=*/true);
}

void brgemm_done() {
  at::native::cpublas::brgemm_release();
}

}  // namespace attentive::kernels::cpu
