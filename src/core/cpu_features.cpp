#include "core/cpu_features.h"

#include <cstdlib>
#include <string>

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace attentive {
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

#if defined(__x86_64__)
// Conversions of float16, which a hypervisor may hide from a CPU with AVX2. (Clang 14 does not know this name
// in __builtin_cpu_supports.)
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) != 0;
}

bool has_avx512_fp16() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kFp16 = 1u << 23;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & kFp16) != 0;
}
#endif

#if defined(__x86_64__)
bool is_amd_from_zen5_on() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__builtin_cpu_is("amd") || !__get_cpuid(1, &a, &b, &c, &d)) return false;
  const unsigned family = (a >> 8 & 0xf) + (a >> 20 & 0xff);
  return family >= 0x1a;
}
#endif

#if defined(__aarch64__) && defined(__linux__)
constexpr unsigned long kHwcap2Bf16 = 1UL << 14;  // as in the kernel's <asm/hwcap.h>
#endif

CpuFeatures detect() {
  CpuFeatures cpu;
#if defined(__x86_64__)
  __builtin_cpu_init();
  cpu.pclmul = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
  cpu.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
  cpu.avx512 = cpu.avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  cpu.avx512_bf16 = cpu.avx512 && __builtin_cpu_supports("avx512bf16");
  cpu.avx512_fp16 = cpu.avx512_bf16 && has_avx512_fp16();
  cpu.avx512_vbmi = cpu.avx512 && __builtin_cpu_supports("avx512vbmi");
  cpu.fast_pairs = cpu.avx512_bf16 && __builtin_cpu_is("amd");
  cpu.amx = cpu.avx512_bf16 && has_amx();
  cpu.prefetch_to_l2 = !is_amd_from_zen5_on();
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

std::string_view cpu_limit() {
  static const std::string limit = [] {
    const char* const value = std::getenv("ATEN_CPU_CAPABILITY");
    return std::string(value ? value : "");
  }();
  return limit;
}

}  // namespace attentive
