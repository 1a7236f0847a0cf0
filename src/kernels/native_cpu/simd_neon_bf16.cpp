#define ATTENTIVE_SIMD_NAMESPACE neon_bf16
#define ATTENTIVE_SIMD_WIDTH 4
#define ATTENTIVE_SIMD_NEON
#include "kernels/simd/simd.h"

#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#include "kernels/native_cpu/simd_impl.h"
#endif

namespace attentive::kernels::cpu {

const Simd* simd_neon_bf16() {
#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
  static constexpr Simd table = neon_bf16::make_table("neon_bf16");
  return &table;
#else
  return nullptr;
#endif
}

}  // namespace attentive::kernels::cpu
