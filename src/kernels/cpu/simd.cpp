#include "kernels/cpu/simd.h"

#include <cstdlib>
#include <string_view>

namespace attentive::kernels::cpu {
namespace {

// ATEN_CPU_CAPABILITY limits PyTorch's own kernels to an instruction set; it limits these too ("avx512":
// without bfloat16 instructions and matrix unit).
const Simd& choose() {
#if defined(__x86_64__)
  const char* variable = std::getenv("ATEN_CPU_CAPABILITY");
  const std::string_view limit = variable ? variable : "";
  if (limit == "default") return *simd_portable();
  __builtin_cpu_init();
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (avx512 && limit != "avx2") {
    if (limit != "avx512" && __builtin_cpu_supports("avx512bf16") && simd_avx512_bf16())
      return *simd_avx512_bf16();
    if (simd_avx512()) return *simd_avx512();
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && simd_avx2()) return *simd_avx2();
#endif
  return *simd_portable();
}

}  // namespace

const Simd& simd() {
  static const Simd& table = choose();
  return table;
}

}  // namespace attentive::kernels::cpu
