#define ATTENTIVE_SIMD_NAMESPACE portable
#define ATTENTIVE_SIMD_WIDTH 4
#define ATTENTIVE_SIMD_SET 1
#include "kernels/native_cpu/tables.h"
