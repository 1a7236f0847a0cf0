#include "kernels/attention/unit_code.h"
#include "kernels/simd/vector_code.h"

namespace attentive::kernels::cpu {
const UnitFunctions* portable_units() {
  return &kUnitFunctions;
}
}  // namespace attentive::kernels::cpu
