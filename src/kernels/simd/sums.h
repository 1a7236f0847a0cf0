#pragma once

// Helpers shared by the products of few rows: reducing vectors of sums to numbers at the end of a block, and
// prefetching.

#include <attentive/score/vectors/vector.h>

ATTENTIVE_SIMD_BEGIN

/// The number of sums of a block that fit in registers together with the operands.
constexpr int kSums = ATTENTIVE_SIMD_IS_AVX512 || ATTENTIVE_SIMD_IS_NEON ? 16 : 8;

// out[i] is the sum of v[i], added up in the same order for every i.
#if ATTENTIVE_SIMD_IS_AVX512
inline void sums(const Vec (&v)[16], float* out) {
  __m512 pair[8], four[4];
  for (int i = 0; i < 8; ++i) {
    const __m512 a = (__m512)v[2 * i], b = (__m512)v[2 * i + 1];
    pair[i] = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
  }
  for (int i = 0; i < 4; ++i) {
    const __m512d a = _mm512_castps_pd(pair[2 * i]), b = _mm512_castps_pd(pair[2 * i + 1]);
    four[i] =
        _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)), _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
  }
  const auto halve = [](__m512 a, __m512 b) {
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
  };
  _mm512_storeu_ps(out, halve(halve(four[0], four[1]), halve(four[2], four[3])));
}
#elif ATTENTIVE_SIMD_IS_AVX2
inline void four_sums(const Vec* v, float* out) {
  const __m256 a = _mm256_hadd_ps((__m256)v[0], (__m256)v[1]), b = _mm256_hadd_ps((__m256)v[2], (__m256)v[3]);
  const __m256 halves = _mm256_hadd_ps(a, b);
  _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps(halves, 1)));
}
#elif ATTENTIVE_SIMD_IS_NEON
inline void four_sums(const Vec* v, float* out) {
  const auto pairs = [&](int i) { return vpaddq_f32((float32x4_t)v[i], (float32x4_t)v[i + 1]); };
  vst1q_f32(out, vpaddq_f32(pairs(0), pairs(2)));
}
#endif
#if ATTENTIVE_SIMD_IS_AVX2 || ATTENTIVE_SIMD_IS_NEON
template <int kCount>
inline void sums(const Vec (&v)[kCount], float* out) {
  static_assert(kCount % 4 == 0);
#pragma GCC unroll 4
  for (int i = 0; i < kCount; i += 4) four_sums(v + i, out + i);
}
#elif !ATTENTIVE_SIMD_IS_AVX512
template <int kCount>
inline void sums(const Vec (&v)[kCount], float* out) {
  for (int i = 0; i < kCount; ++i) out[i] = sum(v[i]);
}
#endif

/// The number of elements of a cache line, which is fetched as a whole.
template <class T>
constexpr int64_t kLine = 64 / sizeof(T);

/// Prefetches a line into the L1 cache.
inline void prefetch(const void* p) {
  __builtin_prefetch(p, 0, 3);
}

/// Whether to prefetch, and into which cache (CpuFeatures::prefetch_to_l2).
enum class Prefetch { No, IntoL1, IntoL2 };

/// Prefetches rows beyond the current ones: a page holds few rows, and the hardware prefetcher stops at the
/// end of a page.
template <Prefetch kPrefetch>
inline void prefetch_beyond(const void* p) {
  constexpr int64_t kBytesAhead = 8192;
  const char* const beyond = static_cast<const char*>(p) + kBytesAhead;
  if constexpr (kPrefetch == Prefetch::IntoL1) __builtin_prefetch(beyond, 0, 3);
  if constexpr (kPrefetch == Prefetch::IntoL2) __builtin_prefetch(beyond, 0, 2);
}

/// The numbers 0 … n - 1 as template arguments. (<utility> would bring inline code of the library.)
template <int... kCounted>
struct Sequence {};
template <int n, int... kCounted>
struct Count : Count<n - 1, n - 1, kCounted...> {};
template <int... kCounted>
struct Count<0, kCounted...> {
  using Type = Sequence<kCounted...>;
};

ATTENTIVE_SIMD_END
