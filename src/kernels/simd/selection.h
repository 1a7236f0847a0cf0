#pragma once

// Chooses the vector code and the products of half types for a CPU.

#include <string_view>

#include "core/cpu_features.h"
#include "kernels/simd/vector_code.h"

namespace attentive::kernels::cpu {

/// Chooses the code for a CPU. `limit` is a value of `cpu_limit` ("avx512" excludes bfloat16 instructions and
/// the matrix unit). It cannot enable a set that the CPU lacks.
Selection select(const CpuFeatures& cpu, std::string_view limit);

/// For tests: forces a selection that this CPU can run, for all threads, until the end of the scope.
class SelectionGuard {
 public:
  explicit SelectionGuard(const Selection& selection);
  ~SelectionGuard();
  SelectionGuard(const SelectionGuard&) = delete;
  SelectionGuard& operator=(const SelectionGuard&) = delete;

 private:
  Selection selection_;
  const Selection* before_;
};

}  // namespace attentive::kernels::cpu
