#include "kernels/cpu/simd.h"

#include <cstdlib>
#include <string_view>

#include "kernels/cpu/cpu_features.h"

namespace attentive::kernels::cpu {
namespace {

// ATEN_CPU_CAPABILITY limits PyTorch's own kernels to an instruction set; it limits these too ("avx512":
// without bfloat16 instructions and matrix unit). It never makes them wider than the CPU.
const Simd& choose() {
  const char* variable = std::getenv("ATEN_CPU_CAPABILITY");
  const std::string_view limit = variable ? variable : "";
  if (limit != "default") {
    if (limit != "avx2" && cpu_runs_avx512()) {
      if (limit != "avx512" && cpu_runs_avx512_bf16() && simd_avx512_bf16()) return *simd_avx512_bf16();
      if (simd_avx512()) return *simd_avx512();
    }
    if (cpu_runs_avx2() && simd_avx2()) return *simd_avx2();
  }
  return *simd_portable();
}

}  // namespace

const Simd& simd() {
  static const Simd& table = choose();
  return table;
}

}  // namespace attentive::kernels::cpu
