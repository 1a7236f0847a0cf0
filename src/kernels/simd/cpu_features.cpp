#include "kernels/simd/cpu_features.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace attentive::kernels::cpu {
namespace {

// Whether the CPU and the operating system support the matrix unit. It asks the system for permission to use
// it.
bool has_amx() {
#if defined(__x86_64__) && defined(__linux__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  constexpr unsigned kBf16 = 1u << 22, kTile = 1u << 24;
  if ((d & kBf16) == 0 || (d & kTile) == 0) return false;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // arch_prctl(2)
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

#if defined(__aarch64__) && defined(__linux__)
constexpr unsigned long kHwcap2Bf16 = 1UL << 14;  // as in the kernel's <asm/hwcap.h>
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
