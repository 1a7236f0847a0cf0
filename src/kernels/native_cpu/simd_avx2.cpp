#define ATTENTIVE_SIMD_NAMESPACE avx2
#define ATTENTIVE_SIMD_WIDTH 8
#define ATTENTIVE_SIMD_SET __AVX2__
#include "kernels/native_cpu/tables.h"
