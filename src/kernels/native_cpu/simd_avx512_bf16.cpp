#define ATTENTIVE_SIMD_NAMESPACE avx512_bf16
#define ATTENTIVE_SIMD_WIDTH 16
#define ATTENTIVE_SIMD_SET __AVX512BF16__
#include "kernels/native_cpu/tables.h"
