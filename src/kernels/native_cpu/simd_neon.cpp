#define ATTENTIVE_SIMD_NAMESPACE neon
#define ATTENTIVE_SIMD_WIDTH 4
#define ATTENTIVE_SIMD_NEON
#include "kernels/simd/simd.h"

#if defined(__aarch64__)
#include "kernels/native_cpu/simd_impl.h"
#endif

namespace attentive::kernels::cpu {

const Simd* simd_neon() {
#if defined(__aarch64__)
  static constexpr Simd table = neon::make_table("neon");
  return &table;
#else
  return nullptr;
#endif
}

}  // namespace attentive::kernels::cpu
