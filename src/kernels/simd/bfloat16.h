#pragma once

// Conversion of vectors from and to bfloat16.

#include "kernels/simd/matrix.h"
#include "kernels/simd/vector.h"

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
inline Vec load_part(const bf16_t* p, int64_t n) {
  if (n >= kWidth) return widen(load<Half>(p));
  Half h = {};
  std::memcpy(&h, p, static_cast<size_t>(n) * sizeof(bf16_t));
  return widen(h);
}
inline void store_part(bf16_t* p, Vec v, int64_t n) {
  const Half h = narrow(v);
  if (n >= kWidth) return store(p, h);
  std::memcpy(p, &h, static_cast<size_t>(n) * sizeof(bf16_t));
}

ATTENTIVE_SIMD_END
