#include "score/instruction_sets.h"

#include <vector>

#include "kernels/simd/selection.h"

namespace attentive::test {

void for_each_instruction_set(const std::function<void(const std::string& name)>& check) {
  const auto& cpu = this_cpu();
  std::vector<std::string> limits = {"default"};
  if (cpu.avx2) limits.emplace_back("avx2");
  if (cpu.avx512) limits.emplace_back("avx512");
  for (const auto& limit : limits) {
    const kernels::cpu::SelectionGuard guard(kernels::cpu::select(cpu, limit));
    check(limit);
  }
}

}  // namespace attentive::test
