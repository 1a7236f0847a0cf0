#pragma once

#include "kernels/simd/simd.h"

// The vector code of width 16 without AVX-512's intrinsics.
const attentive::kernels::cpu::Simd& wide_kernels();
