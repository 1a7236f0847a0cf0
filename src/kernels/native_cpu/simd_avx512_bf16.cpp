#define ATTENTIVE_SIMD_NAMESPACE avx512_bf16
#define ATTENTIVE_SIMD_WIDTH 16
#include "kernels/simd/simd.h"

#if defined(__AVX512BF16__)
#include "kernels/native_cpu/simd_impl.h"
#endif

namespace attentive::kernels::cpu {

const Simd* simd_avx512_bf16() {
#if defined(__AVX512BF16__)
  static constexpr Simd table = avx512_bf16::make_table("avx512_bf16");
  return &table;
#else
  return nullptr;
#endif
}

}  // namespace attentive::kernels::cpu
