#ifndef ATTENTIVE_SCORE_VECTOR_H
#define ATTENTIVE_SCORE_VECTOR_H

// Vectors: loads, stores, selection and reductions; and before them the macros of their instruction set.

#include <cstdint>
#include <cstring>

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

ATTENTIVE_SIMD_BEGIN

constexpr int kWidth = ATTENTIVE_SIMD_WIDTH;
constexpr float kMinusInfinity = -__builtin_inff();

typedef float Vec __attribute__((vector_size(kWidth * 4)));
typedef int32_t Int __attribute__((vector_size(kWidth * 4)));
typedef uint32_t Uint __attribute__((vector_size(kWidth * 4)));
typedef uint16_t Half __attribute__((vector_size(kWidth * 2)));
typedef uint8_t Byte __attribute__((vector_size(kWidth)));

#if ATTENTIVE_SIMD_IS_AVX512
/// The forms of intrinsics that take a mask read no undefined operand, of which g++ 12 warns in the others.
constexpr __mmask16 kEveryLane = 0xffff;
#endif

template <class V, class T>
inline V load(const T* p) {
  static_assert(sizeof(V) == sizeof(T) * kWidth);
  V v;
  std::memcpy(&v, p, sizeof(V));
  return v;
}
template <class V, class T>
inline void store(T* p, V v) {
  std::memcpy(p, &v, sizeof(V));
}
inline Vec all(float x) {
  return x - Vec{};
}
inline Int all(int32_t x) {
  return x - Int{};
}
inline Uint all(uint32_t x) {
  return x - Uint{};
}
inline Int lanes() {
  static constexpr int32_t numbers[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  Int v;
  std::memcpy(&v, numbers, sizeof(v));
  return v;
}
inline Vec lanes_as_floats() {
  return __builtin_convertvector(lanes(), Vec);
}
/// The lanes of a vector of 4-byte numbers in the opposite order.
template <class V>
inline V reversed(V v) {
#if ATTENTIVE_SIMD_IS_AVX512
  return (V)_mm512_maskz_permutexvar_epi32(kEveryLane, (__m512i)(15 - lanes()), (__m512i)v);
#elif ATTENTIVE_SIMD_IS_AVX2
  return (V)_mm256_permutevar8x32_epi32((__m256i)v, (__m256i)(7 - lanes()));
#else
  V result;
  for (int i = 0; i < kWidth; ++i) result[i] = v[kWidth - 1 - i];
  return result;
#endif
}
inline Vec select(Int condition, Vec yes, Vec no) {
  return condition ? yes : no;
}
/// The larger number of each lane; a NaN in `x` is ignored.
inline Vec larger(Vec x, Vec top) {
#if ATTENTIVE_SIMD_IS_AVX512
  return (Vec)_mm512_maskz_max_ps(kEveryLane, (__m512)x, (__m512)top);  // the second operand if either is NaN
#elif ATTENTIVE_SIMD_IS_AVX2
  return (Vec)_mm256_max_ps((__m256)x, (__m256)top);
#elif ATTENTIVE_SIMD_IS_NEON
  return (Vec)vmaxnmq_f32((float32x4_t)x, (float32x4_t)top);
#else
  return x > top ? x : top;
#endif
}
/// The larger number of each lane; NaN if `y` is NaN.
inline Vec larger_or_nan(Vec x, Vec y) {
#if ATTENTIVE_SIMD_IS_NEON
  return (Vec)vmaxq_f32((float32x4_t)x, (float32x4_t)y);
#else
  return larger(x, y);
#endif
}
/// The smaller number of each lane; NaN if `y` is NaN.
inline Vec smaller_or_nan(Vec x, Vec y) {
#if ATTENTIVE_SIMD_IS_AVX512
  return (Vec)_mm512_maskz_min_ps(kEveryLane, (__m512)x, (__m512)y);  // the second operand if either is NaN
#elif ATTENTIVE_SIMD_IS_AVX2
  return (Vec)_mm256_min_ps((__m256)x, (__m256)y);
#elif ATTENTIVE_SIMD_IS_NEON
  return (Vec)vminq_f32((float32x4_t)x, (float32x4_t)y);
#else
  return x < y ? x : y;
#endif
}
/// Selects `v` in the lanes whose bit is set, else 0.
inline Vec where_bits(uint32_t bits, Vec v) {
#if ATTENTIVE_SIMD_IS_AVX512
  return (Vec)_mm512_maskz_mov_ps(static_cast<__mmask16>(bits), (__m512)v);
#elif ATTENTIVE_SIMD_IS_NEON
  return (Vec)((Uint)vtstq_u32(vdupq_n_u32(bits), (uint32x4_t)Uint{1, 2, 4, 8}) & (Uint)v);
#else
  return (((static_cast<int32_t>(bits) - Int{}) >> lanes()) & 1) != 0 ? v : all(0.0f);
#endif
}
#if ATTENTIVE_SIMD_IS_AVX512 || ATTENTIVE_SIMD_IS_AVX2
inline float sum_of_8(__m256 v) {
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
inline float largest_of_8(__m256 v) {
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}
#endif
#if ATTENTIVE_SIMD_IS_AVX512
template <int kHalf>
inline __m256 half_of(Vec v) {
  return _mm512_maskz_extractf32x8_ps(static_cast<__mmask8>(kEveryLane), (__m512)v, kHalf);
}
inline float sum(Vec v) {
  return sum_of_8(_mm256_add_ps(half_of<0>(v), half_of<1>(v)));
}
inline float largest(Vec v) {
  return largest_of_8(_mm256_max_ps(half_of<0>(v), half_of<1>(v)));
}
#elif ATTENTIVE_SIMD_IS_AVX2
inline float sum(Vec v) {
  return sum_of_8((__m256)v);
}
inline float largest(Vec v) {
  return largest_of_8((__m256)v);
}
#elif ATTENTIVE_SIMD_IS_NEON
inline float sum(Vec v) {
  return vaddvq_f32((float32x4_t)v);
}
inline float largest(Vec v) {
  return vmaxnmvq_f32((float32x4_t)v);
}
#else
inline float sum(Vec v) {
  for (int half = kWidth / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) v[i] += v[i + half];
  }
  return v[0];
}
inline float largest(Vec v) {
  float result = v[0];
  for (int i = 1; i < kWidth; ++i) result = v[i] > result ? v[i] : result;
  return result;
}
#endif

/// The partial vector at the end of a row is copied byte by byte, so that no byte beyond the row is read or
/// written.
inline Vec load_part(const float* p, int64_t n, float fill = 0.0f) {
  if (n >= kWidth) return load<Vec>(p);
  Vec v = all(fill);
  std::memcpy(&v, p, static_cast<size_t>(n) * sizeof(float));
  return v;
}
inline void store_part(float* p, Vec v, int64_t n) {
  if (n >= kWidth) return store(p, v);
  std::memcpy(p, &v, static_cast<size_t>(n) * sizeof(float));
}

ATTENTIVE_SIMD_END

#endif
