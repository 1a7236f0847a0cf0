#pragma once

// The Counter dropout stream: Philox numbers, compared with the threshold.

#include <attentive/score/vectors/vector.h>

#include "kernels/philox.h"
#include "kernels/simd/elementwise.h"

ATTENTIVE_SIMD_BEGIN

/// A number of 32 bits per key, in the lower half of a lane of 64 bits; upper halves are arbitrary. Products
/// have all their bits, so that their lower halves are there at once and no number changes its lane.
struct Numbers {
  Uint even, odd;  // of even keys and of odd ones
};
typedef uint64_t Lanes64 __attribute__((vector_size(kWidth * 4)));

inline Uint product(Uint a, uint32_t m) {
#if ATTENTIVE_SIMD_IS_AVX512
  return (Uint)_mm512_mul_epu32((__m512i)a, _mm512_set1_epi64(m));
#elif ATTENTIVE_SIMD_IS_AVX2
  return (Uint)_mm256_mul_epu32((__m256i)a, _mm256_set1_epi64x(m));
#elif ATTENTIVE_SIMD_IS_NEON
  return (Uint)vmull_u32(vmovn_u64((uint64x2_t)a), vdup_n_u32(m));
#else
  return (Uint)(((Lanes64)a & 0xffffffffu) * m);
#endif
}

inline Uint exclusive_or(Uint a, Uint b, Uint c) {
#if ATTENTIVE_SIMD_IS_AVX512
  return (Uint)_mm512_ternarylogic_epi32((__m512i)a, (__m512i)b, (__m512i)c, 0x96);
#else
  return a ^ b ^ c;
#endif
}

inline Numbers product(const Numbers& a, uint32_t m) {
  return {product(a.even, m), product(a.odd, m)};
}

/// The upper halves.
inline Numbers high(const Numbers& a) {
#if ATTENTIVE_SIMD_IS_AVX512
  const auto half = [](Uint x) { return (Uint)_mm512_shuffle_epi32((__m512i)x, (_MM_PERM_ENUM)0xf5); };
#else
  const auto half = [](Uint x) { return (Uint)((Lanes64)x >> 32); };
#endif
  return {half(a.even), half(a.odd)};
}

inline Numbers exclusive_or(const Numbers& a, const Numbers& b, uint32_t c) {
  return {exclusive_or(a.even, b.even, all(c)), exclusive_or(a.odd, b.odd, all(c))};
}

inline Numbers exclusive_or(const Numbers& a, uint32_t b) {
  return {a.even ^ all(b), a.odd ^ all(b)};
}

/// All keys in the order of their lanes.
inline Uint in_order(const Numbers& a) {
#if ATTENTIVE_SIMD_IS_AVX512
  return (Uint)_mm512_mask_mov_epi32((__m512i)a.even, 0xAAAA, _mm512_slli_epi64((__m512i)a.odd, 32));
#elif ATTENTIVE_SIMD_IS_AVX2
  return (Uint)_mm256_blend_epi32((__m256i)a.even, _mm256_slli_epi64((__m256i)a.odd, 32), 0xAA);
#else
  return (Uint)(((Lanes64)a.even & 0xffffffffu) | (Lanes64)a.odd << 32);
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

/// The rounds of `philox`. Its counter has one number of its own per key and three that keys share, one of
/// them of the row: the first round, most of the second and half of the third are computed once for all rows.
void dropout_bits(const DropoutBits& rows) {
  uint32_t k0[kPhiloxRounds], k1[kPhiloxRounds];
  for (uint32_t n = 0; n < kPhiloxRounds; ++n) {
    k0[n] = static_cast<uint32_t>(rows.key) + n * kPhiloxW0;
    k1[n] = static_cast<uint32_t>(rows.key >> 32) + n * kPhiloxW1;
  }
  const uint64_t of_head = static_cast<uint64_t>(kPhiloxM1) * rows.h;
#pragma GCC unroll 4
  for (uint32_t lane = 0; lane < 16; lane += kWidth) {
    const Uint keys = (Uint)lanes() + all(rows.block * 16 + lane);
    const Numbers p = product({keys, (Uint)((Lanes64)keys >> 32)}, kPhiloxM0),
                  q = product(exclusive_or(high(p), rows.b ^ k1[0]), kPhiloxM1),
                  r = product(exclusive_or(high(q), static_cast<uint32_t>(of_head) ^ k0[1]), kPhiloxM0),
                  high_r = exclusive_or(high(r), k1[2]);
    for (uint32_t n = 0; n < rows.count; ++n) {
      const uint64_t of_row =
          static_cast<uint64_t>(kPhiloxM0) * (static_cast<uint32_t>(of_head >> 32) ^ (rows.i + n) ^ k0[0]);
      const Numbers s = product(exclusive_or(p, static_cast<uint32_t>(of_row >> 32) ^ k1[1]), kPhiloxM1);
      Numbers c[4] = {exclusive_or(high(s), q, k0[2]), s, exclusive_or(high_r, static_cast<uint32_t>(of_row)),
                      r};
#pragma GCC unroll 4
      for (int round = 3; round < kPhiloxRounds; ++round) {
        const Numbers first = product(c[0], kPhiloxM0), second = product(c[2], kPhiloxM1);
        c[0] = exclusive_or(high(second), c[1], k0[round]);
        c[1] = second;
        c[2] = exclusive_or(high(first), c[3], k1[round]);
        c[3] = first;
      }
      uint16_t* const out = rows.out + n * rows.row_stride;
#pragma GCC unroll 4
      for (int word = 0; word < 4; ++word) {
        const Uint x = in_order(c[word]);
        const uint32_t low = bits_below(x & 0xffffu, all(rows.threshold)) << lane,
                       upper = bits_below(x >> 16, all(rows.threshold)) << lane;
        uint16_t &to_low = out[2 * word * rows.stride], &to_upper = out[(2 * word + 1) * rows.stride];
        to_low = static_cast<uint16_t>(lane == 0 ? low : to_low | low);
        to_upper = static_cast<uint16_t>(lane == 0 ? upper : to_upper | upper);
      }
    }
  }
}

ATTENTIVE_SIMD_END
