#pragma once

// Conversion of vectors from and to bfloat16 and float16. Those of float16 have the same bits on every
// instruction set.

#include <attentive/score/vectors/vector.h>

#include "kernels/simd/matrix.h"

ATTENTIVE_SIMD_BEGIN

inline Vec widen(Half h) {
#if ATTENTIVE_SIMD_IS_NEON
  return (Vec)vshll_n_u16((uint16x4_t)h, 16);
#else
  return (Vec)(__builtin_convertvector(h, Uint) << 16);
#endif
}
/// Rounds to nearest, ties to even; NaN stays NaN.
inline Half narrow(Vec x) {
#if ATTENTIVE_SIMD_IS_AVX512 && defined(__AVX512BF16__)
  // The instruction takes numbers below the smallest normal one for 0.
  constexpr int kSubnormal = 0x20;
  if (_mm512_fpclass_ps_mask((__m512)x, kSubnormal) == 0) return (Half)_mm512_cvtneps_pbh((__m512)x);
#endif
  const Uint bits = (Uint)x;
  const Uint rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const Uint nan = (bits >> 16) | 0x40u;
  return __builtin_convertvector((x == x) ? rounded : nan, Half);
}
/// Does the same by one instruction where it exists; numbers below the smallest normal one may become 0.
inline Half narrow_fast(Vec x) {
#if ATTENTIVE_SIMD_IS_AVX512 && defined(__AVX512BF16__)
  return (Half)_mm512_cvtneps_pbh((__m512)x);
#elif ATTENTIVE_SIMD_IS_NEON_BF16
  return (Half)vcvt_bf16_f32((float32x4_t)x);
#else
  return narrow(x);
#endif
}
inline void store_narrow_pair(bf16_t* p, Vec low, Vec high) {
#if ATTENTIVE_SIMD_IS_AVX512 && defined(__AVX512BF16__)
  const auto both = _mm512_cvtne2ps_pbh((__m512)high, (__m512)low);
  std::memcpy(p, &both, sizeof(both));
#elif ATTENTIVE_SIMD_IS_NEON_BF16
  const auto both = vcvtq_high_bf16_f32(vcvtq_low_bf16_f32((float32x4_t)low), (float32x4_t)high);
  std::memcpy(p, &both, sizeof(both));
#else
  store(p, narrow_fast(low));
  store(p + kWidth, narrow_fast(high));
#endif
}

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

/// Convert from and to a half type T, bf16_t or f16_t.
template <class T>
inline Vec from_half(Half h) {
  if constexpr (kIsBf16<T>) return widen(h);
  return widen_f16(h);
}
template <class T>
inline Half to_half(Vec v) {
  if constexpr (kIsBf16<T>) return narrow(v);
  return narrow_f16(v);
}

/// Load and store the first n of a vector's numbers. T is bf16_t or f16_t.
template <class T>
inline Vec load_part(const T* p, int64_t n) {
  Half h = {};
  if (n >= kWidth) {
    h = load<Half>(p);
  } else {
    std::memcpy(&h, p, static_cast<size_t>(n) * sizeof(T));
  }
  return from_half<T>(h);
}
template <class T>
inline void store_part(T* p, Vec v, int64_t n) {
  const Half h = to_half<T>(v);
  if (n >= kWidth) return store(p, h);
  std::memcpy(p, &h, static_cast<size_t>(n) * sizeof(T));
}

ATTENTIVE_SIMD_END
