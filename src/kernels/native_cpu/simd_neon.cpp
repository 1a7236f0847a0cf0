#define ATTENTIVE_SIMD_NAMESPACE neon
#define ATTENTIVE_SIMD_WIDTH 4
#define ATTENTIVE_SIMD_NEON
#define ATTENTIVE_SIMD_SET __aarch64__
#include "kernels/native_cpu/tables.h"
