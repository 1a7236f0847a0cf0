#include "kernels/cpu/cpu_features.h"

namespace attentive::kernels::cpu {

#if defined(__x86_64__)

bool cpu_runs_avx2() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

bool cpu_runs_avx512() {
  return cpu_runs_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

bool cpu_runs_avx512_bf16() {
  return cpu_runs_avx512() && __builtin_cpu_supports("avx512bf16");
}

#else

bool cpu_runs_avx2() {
  return false;
}
bool cpu_runs_avx512() {
  return false;
}
bool cpu_runs_avx512_bf16() {
  return false;
}

#endif

}  // namespace attentive::kernels::cpu
