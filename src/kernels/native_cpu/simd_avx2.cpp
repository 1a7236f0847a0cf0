#define ATTENTIVE_SIMD_NAMESPACE avx2
#define ATTENTIVE_SIMD_WIDTH 8
#include "kernels/simd/simd.h"

#if defined(__AVX2__)
#include "kernels/native_cpu/simd_impl.h"
#endif

namespace attentive::kernels::cpu {

const Simd* simd_avx2() {
#if defined(__AVX2__)
  static constexpr Simd table = avx2::make_table("avx2");
  return &table;
#else
  return nullptr;
#endif
}

}  // namespace attentive::kernels::cpu
