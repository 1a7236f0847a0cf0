#include "kernels/cpu/brgemm.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Exception.h>

#include "kernels/aten_internals.h"

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
  aten::brgemm(m, n, k, a, lda, b, ldb, c, ldc, accumulate);
}

void brgemm(int64_t m, int64_t n, int64_t k, const bf16_t* a, int64_t lda, const bf16_t* b, int64_t ldb,
            float* c, int64_t ldc, bool accumulate) {
  aten::brgemm(m, n, k, as_bf16(a), lda, as_bf16(b), ldb, c, ldc, accumulate);
}

void brgemm_done() {
  aten::brgemm_release();
}

}  // namespace attentive::kernels::cpu
