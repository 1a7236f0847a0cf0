#pragma once

#include <c10/core/ScalarType.h>

#include "kernels/simd/matrix.h"

namespace attentive::kernels::cpu {

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
