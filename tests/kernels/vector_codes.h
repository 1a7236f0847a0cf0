#pragma once

#include <vector>

#include "core/cpu_features.h"
#include "kernels/simd/selection.h"
#include "kernels/simd_wide.h"
#include "support/covering_array.h"

namespace attentive::test {

/// The code of every instruction set that this CPU has; in a run with limited instructions, the code that it
/// uses.
inline std::vector<const kernels::cpu::VectorCode*> vector_codes() {
  namespace cpu = kernels::cpu;
  if (limited_instructions()) return {&cpu::vector_code()};
  const auto& features = this_cpu();
  std::vector<const cpu::VectorCode*> all = {cpu::portable::code(), cpu::wide::code()};
  if (features.avx2) all.push_back(cpu::avx2::code());
  if (features.avx512) all.push_back(cpu::avx512::code());
  if (features.avx512_bf16) all.push_back(cpu::avx512_bf16::code());
  if (features.neon) all.push_back(cpu::neon::code());
  if (features.neon_bf16) all.push_back(cpu::neon_bf16::code());
  return all;
}

}  // namespace attentive::test
