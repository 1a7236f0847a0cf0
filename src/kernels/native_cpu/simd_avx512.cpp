#define ATTENTIVE_SIMD_NAMESPACE avx512
#define ATTENTIVE_SIMD_WIDTH 16
#define ATTENTIVE_SIMD_SET __AVX512F__
#include "kernels/native_cpu/tables.h"
