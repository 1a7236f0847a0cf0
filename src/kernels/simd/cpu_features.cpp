#include "kernels/simd/cpu_features.h"

#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

#include "kernels/gemm/amx.h"

namespace attentive::kernels::cpu {
namespace {

#if defined(__aarch64__) && defined(__linux__)
constexpr unsigned long kHwcap2Bf16 = 1UL << 14;  // as the kernel's <asm/hwcap.h> has it
#endif

CpuFeatures detect() {
  CpuFeatures cpu;
#if defined(__x86_64__)
  __builtin_cpu_init();
  cpu.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  cpu.avx512 = cpu.avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  cpu.avx512_bf16 = cpu.avx512 && __builtin_cpu_supports("avx512bf16");
  cpu.fast_pairs = cpu.avx512_bf16 && __builtin_cpu_is("amd");
  cpu.amx = cpu.avx512_bf16 && has_amx();
#elif defined(__aarch64__)
  cpu.neon = true;
#if defined(__linux__)
  cpu.neon_bf16 = (getauxval(AT_HWCAP2) & kHwcap2Bf16) != 0;
#endif
#endif
  return cpu;
}

}  // namespace

const CpuFeatures& this_cpu() {
  static const CpuFeatures cpu = detect();
  return cpu;
}

}  // namespace attentive::kernels::cpu
