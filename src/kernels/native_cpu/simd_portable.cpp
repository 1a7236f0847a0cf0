#define ATTENTIVE_SIMD_NAMESPACE portable
#define ATTENTIVE_SIMD_WIDTH 4
#include "kernels/native_cpu/simd_impl.h"
#include "kernels/simd/simd.h"

namespace attentive::kernels::cpu {

const Simd* simd_portable() {
  static constexpr Simd table = portable::make_table("portable");
  return &table;
}

}  // namespace attentive::kernels::cpu
