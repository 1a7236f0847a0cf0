#pragma once

// Chooses the vector code and the products of half types for a CPU.

#include <string_view>

#include <c10/core/ScalarType.h>

#include "core/cpu_features.h"
#include "kernels/simd/matrix.h"
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

/// Calls work(T{}) for the type T of a dtype's numbers, float32 or a half type, and returns whether the dtype
/// is one of these.
template <class Work>
bool for_numbers(at::ScalarType type, const Work& work) {
  switch (type) {
    case at::kFloat:
      work(float{});
      return true;
    case at::kBFloat16:
      work(bf16_t{});
      return true;
    case at::kHalf:
      work(f16_t{});
      return true;
    default:
      return false;
  }
}

}  // namespace attentive::kernels::cpu
