#pragma once

// The Counter dropout stream: Philox numbers, compared with the threshold.

#include <attentive/score/vectors/vector.h>

#include "kernels/philox.h"

ATTENTIVE_SIMD_BEGIN

/// The high and low 32 bits of each product.
inline void multiply(Uint a, uint32_t m, Uint& high, Uint& low) {
#if ATTENTIVE_SIMD_IS_AVX512
  const __m512i factor = _mm512_set1_epi64(m);
  const __m512i even = _mm512_mul_epu32((__m512i)a, factor);
  const __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64((__m512i)a, 32), factor);
  low = (Uint)_mm512_mask_mov_epi32(even, 0xAAAA, _mm512_slli_epi64(odd, 32));
  high = (Uint)_mm512_mask_mov_epi32(_mm512_srli_epi64(even, 32), 0xAAAA, odd);
#elif ATTENTIVE_SIMD_IS_AVX2
  const __m256i factor = _mm256_set1_epi64x(m);
  const __m256i even = _mm256_mul_epu32((__m256i)a, factor);
  const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64((__m256i)a, 32), factor);
  low = (Uint)_mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA);
  high = (Uint)_mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA);
#else
  for (int i = 0; i < kWidth; ++i) {
    const uint64_t product = static_cast<uint64_t>(a[i]) * m;
    low[i] = static_cast<uint32_t>(product);
    high[i] = static_cast<uint32_t>(product >> 32);
  }
#endif
}

inline Uint exclusive_or(Uint a, Uint b, uint32_t c) {
#if ATTENTIVE_SIMD_IS_AVX512
  return (Uint)_mm512_ternarylogic_epi32((__m512i)a, (__m512i)b, (__m512i)all(c), 0x96);
#else
  return a ^ b ^ all(c);
#endif
}

/// Sets the bit of each lane with x < limit. Both are below 2^31.
inline uint32_t bits_below(Uint x, Uint limit) {
#if ATTENTIVE_SIMD_IS_AVX512
  return _mm512_cmplt_epu32_mask((__m512i)x, (__m512i)limit);
#elif ATTENTIVE_SIMD_IS_AVX2
  return static_cast<uint32_t>(_mm256_movemask_ps((__m256)(Uint)(x < limit)));
#elif ATTENTIVE_SIMD_IS_NEON
  return vaddvq_u32((uint32x4_t)((Uint)(x < limit) & Uint{1, 2, 4, 8}));
#else
  uint32_t bits = 0;
  for (int i = 0; i < kWidth; ++i) bits |= static_cast<uint32_t>(x[i] < limit[i]) << i;
  return bits;
#endif
}

void dropout_bits(uint64_t key, uint32_t threshold, uint32_t b, uint32_t h, uint32_t i, uint32_t block,
                  uint16_t* out, int64_t stride) {
  uint32_t bits[8] = {};
#pragma GCC unroll 4
  for (uint32_t lane = 0; lane < 16; lane += kWidth) {
    Uint c[4] = {(Uint)lanes() + all(block * 16 + lane), all(i), all(h), all(b)};
    auto k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
    for (int round = 0; round < kPhiloxRounds; ++round) {
      Uint high0, low0, high1, low1;
      multiply(c[0], kPhiloxM0, high0, low0);
      multiply(c[2], kPhiloxM1, high1, low1);
      c[0] = exclusive_or(high1, c[1], k0);
      c[1] = low1;
      c[2] = exclusive_or(high0, c[3], k1);
      c[3] = low0;
      k0 += kPhiloxW0;
      k1 += kPhiloxW1;
    }
#pragma GCC unroll 4
    for (int word = 0; word < 4; ++word) {
      bits[2 * word] |= bits_below(c[word] & 0xffffu, all(threshold)) << lane;
      bits[2 * word + 1] |= bits_below(c[word] >> 16, all(threshold)) << lane;
    }
  }
#pragma GCC unroll 8
  for (int half = 0; half < 8; ++half) out[half * stride] = static_cast<uint16_t>(bits[half]);
}

ATTENTIVE_SIMD_END
