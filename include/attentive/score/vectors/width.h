// The instruction set of vector code. Whoever includes this code defines both macros before; without them (an
// editor that parses a header alone) the portable set is used. The code uses the compilers' vector extensions
// (GCC and Clang), so that one source serves every width. A source of the library is compiled for one set; a
// program that defines scores has all sets in one source (every_set.h), so the headers of vector code can be
// included once for each.

#ifndef ATTENTIVE_SIMD_WIDTH
#define ATTENTIVE_SIMD_WIDTH 4  // floats per vector
#define ATTENTIVE_SIMD_NAMESPACE portable
#endif

#undef ATTENTIVE_SIMD_IS_AVX512
#undef ATTENTIVE_SIMD_HAS_PAIRS
#undef ATTENTIVE_SIMD_IS_AVX2
#undef ATTENTIVE_SIMD_IS_NEON
#undef ATTENTIVE_SIMD_IS_NEON_BF16
#undef ATTENTIVE_SIMD_BEGIN
#undef ATTENTIVE_SIMD_END

// ATTENTIVE_SIMD_TARGETED: the functions have the target attribute of their set, which sets no macro with
// clang.
#if (defined(__AVX512F__) || defined(ATTENTIVE_SIMD_TARGETED)) && ATTENTIVE_SIMD_WIDTH == 16
#define ATTENTIVE_SIMD_IS_AVX512 1
#else
#define ATTENTIVE_SIMD_IS_AVX512 0
#endif
#if ATTENTIVE_SIMD_IS_AVX512 && defined(__AVX512BF16__)
#define ATTENTIVE_SIMD_HAS_PAIRS 1  // products of pairs of bfloat16
#else
#define ATTENTIVE_SIMD_HAS_PAIRS 0
#endif
#if (defined(__AVX2__) || defined(ATTENTIVE_SIMD_TARGETED)) && ATTENTIVE_SIMD_WIDTH == 8
#define ATTENTIVE_SIMD_IS_AVX2 1
#else
#define ATTENTIVE_SIMD_IS_AVX2 0
#endif
#if defined(__aarch64__) && defined(ATTENTIVE_SIMD_NEON)
#define ATTENTIVE_SIMD_IS_NEON 1
#else
#define ATTENTIVE_SIMD_IS_NEON 0
#endif
#if ATTENTIVE_SIMD_IS_NEON && defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#define ATTENTIVE_SIMD_IS_NEON_BF16 1
#else
#define ATTENTIVE_SIMD_IS_NEON_BF16 0
#endif
#if ATTENTIVE_SIMD_IS_AVX512 || ATTENTIVE_SIMD_IS_AVX2
#include <immintrin.h>
#elif ATTENTIVE_SIMD_IS_NEON
#include <arm_neon.h>
#endif

// These macros surround the code of every header: the namespaces bear the name of the set, and the innermost
// one is internal to the source.
#define ATTENTIVE_SIMD_BEGIN           \
  namespace attentive::kernels::cpu {  \
  namespace ATTENTIVE_SIMD_NAMESPACE { \
  namespace {
#define ATTENTIVE_SIMD_END \
  }                        \
  }                        \
  }
