#include "kernels/simd/cpu_features.h"

#include "kernels/gemm/amx.h"

namespace attentive::kernels::cpu {
namespace {

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
#endif
  return cpu;
}

}  // namespace

const CpuFeatures& this_cpu() {
  static const CpuFeatures cpu = detect();
  return cpu;
}

}  // namespace attentive::kernels::cpu
