// This source must not include library headers with inline code, because it is compiled for instructions that
// the running CPU may lack.
#if defined(__AVX512FP16__) && defined(__linux__)

#define ATTENTIVE_UNITS_ON_AMX
#include "kernels/attention/unit_code.h"
#include "kernels/simd/vector_code.h"

namespace attentive::kernels::cpu {
const UnitFunctions* amx_units() {
  return &kUnitFunctions;
}
}  // namespace attentive::kernels::cpu

#else

#include "kernels/simd/vector_code.h"

namespace attentive::kernels::cpu {
const UnitFunctions* amx_units() {
  return nullptr;
}
}  // namespace attentive::kernels::cpu

#endif
