#pragma once

#include "kernels/simd/vector_code.h"

namespace attentive::kernels::cpu::wide {

/// The vector code of width 16 without AVX-512's intrinsics.
const VectorCode* code();

}  // namespace attentive::kernels::cpu::wide
