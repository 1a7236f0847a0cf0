#define ATTENTIVE_SIMD_NAMESPACE avx512
#define ATTENTIVE_SIMD_WIDTH 16
#include "kernels/simd/simd.h"

#if defined(__AVX512F__)
#include "kernels/native_cpu/simd_impl.h"
#endif

namespace attentive::kernels::cpu {

const Simd* simd_avx512() {
#if defined(__AVX512F__)
  static constexpr Simd table = avx512::make_table("avx512");
  return &table;
#else
  return nullptr;
#endif
}

}  // namespace attentive::kernels::cpu
