#pragma once

// Conversion of vectors from and to float16, with the same bits on every instruction set.

#include "kernels/simd/matrix.h"
#include "kernels/simd/vector.h"

ATTENTIVE_SIMD_BEGIN

/// Widens exactly. A NaN becomes quiet and keeps its upper bits.
inline Vec widen_f16(Half h) {
#if ATTENTIVE_SIMD_IS_AVX512
  return (Vec)_mm512_cvtph_ps((__m256i)h);
#elif ATTENTIVE_SIMD_IS_AVX2
  return (Vec)_mm256_cvtph_ps((__m128i)h);
#elif ATTENTIVE_SIMD_IS_NEON
  return (Vec)vcvt_f32_f16((float16x4_t)h);
#else
  const Uint bits = __builtin_convertvector(h, Uint), size = bits & 0x7fffu;
  // The exponents of the formats are biased by 15 and 127. The largest one, of Inf and NaN, stays the
  // largest.
  const Uint normal = (size << 13) + (112u << 23), beyond = (size << 13) + (224u << 23);
  const Uint quiet = (size > all(0x7c00u)) ? beyond | (1u << 22) : beyond;
  const Uint tiny = (Uint)(__builtin_convertvector((Int)size, Vec) * 0x1p-24f);
  const Uint wide = (size < all(0x0400u)) ? tiny : (size < all(0x7c00u)) ? normal : quiet;
  return (Vec)(wide | (bits & 0x8000u) << 16);
#endif
}

/// Rounds to nearest, ties to even: from 65520 on to Inf, and below 2^-14 to a multiple of 2^-24. NaN stays
/// NaN, quiet and with its upper bits.
inline Half narrow_f16(Vec x) {
#if ATTENTIVE_SIMD_IS_AVX512
  return (Half)_mm512_cvtps_ph((__m512)x, _MM_FROUND_TO_NEAREST_INT);
#elif ATTENTIVE_SIMD_IS_AVX2
  return (Half)_mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_NEAREST_INT);
#elif ATTENTIVE_SIMD_IS_NEON
  return (Half)vcvt_f16_f32((float32x4_t)x);
#else
  const Uint bits = (Uint)x, size = bits & 0x7fffffffu;
  const Uint rounded = (size - (112u << 23) + 0xfffu + ((size >> 13) & 1u)) >> 13;
  // The distance of two floats from 0.5 on is 2^-24, so the sum has the rounded multiple in its lowest bits.
  const Uint tiny = (Uint)((Vec)size + 0.5f) - 0x3f000000u;
  const Uint quiet = ((size >> 13) & 0x3ffu) | 0x7e00u;
  const Uint finite = (size < all(0x38800000u)) ? tiny : rounded;
  const Uint narrow = (size < all(0x477ff000u)) ? finite : (size > all(0x7f800000u)) ? quiet : all(0x7c00u);
  return __builtin_convertvector(narrow | (bits >> 16 & 0x8000u), Half);
#endif
}

inline Vec load_part(const f16_t* p, int64_t n) {
  if (n >= kWidth) return widen_f16(load<Half>(p));
  Half h = {};
  std::memcpy(&h, p, static_cast<size_t>(n) * sizeof(f16_t));
  return widen_f16(h);
}
inline void store_part(f16_t* p, Vec v, int64_t n) {
  const Half h = narrow_f16(v);
  if (n >= kWidth) return store(p, h);
  std::memcpy(p, &h, static_cast<size_t>(n) * sizeof(f16_t));
}

ATTENTIVE_SIMD_END
