// Part of simd_impl.h, inside its namespace: the Counter stream.
#pragma once

#if ATTENTIVE_SIMD_IS_AVX512
// High and low words of 16 products of 32 bits.
inline void multiply(__m512i a, __m512i m, __m512i& high, __m512i& low) {
  const __m512i even = _mm512_mul_epu32(a, m);
  const __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64(a, 32), m);
  low = _mm512_mask_mov_epi32(even, 0xAAAA, _mm512_slli_epi64(odd, 32));
  high = _mm512_mask_mov_epi32(_mm512_srli_epi64(even, 32), 0xAAAA, odd);
}

void dropout_bits(uint64_t key, uint32_t threshold, uint32_t b, uint32_t h, uint32_t i, uint32_t block,
                  uint16_t* out, int64_t stride) {
  const __m512i m0 = _mm512_set1_epi64(kPhiloxM0), m1 = _mm512_set1_epi64(kPhiloxM1);
  __m512i c0 = _mm512_add_epi32(_mm512_set1_epi32(static_cast<int>(block * 16)), (__m512i)lanes());
  __m512i c1 = _mm512_set1_epi32(static_cast<int>(i)), c2 = _mm512_set1_epi32(static_cast<int>(h)),
          c3 = _mm512_set1_epi32(static_cast<int>(b));
  auto k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    __m512i high0, low0, high1, low1;
    multiply(c0, m0, high0, low0);
    multiply(c2, m1, high1, low1);
    c0 = _mm512_ternarylogic_epi32(high1, c1, _mm512_set1_epi32(static_cast<int>(k0)), 0x96);
    c1 = low1;
    c2 = _mm512_ternarylogic_epi32(high0, c3, _mm512_set1_epi32(static_cast<int>(k1)), 0x96);
    c3 = low0;
    k0 += kPhiloxW0;
    k1 += kPhiloxW1;
  }
  const __m512i words[4] = {c0, c1, c2, c3};
  const __m512i limit = _mm512_set1_epi32(static_cast<int>(threshold)), low_half = _mm512_set1_epi32(0xffff);
  for (int w = 0; w < 4; ++w) {
    out[(2 * w) * stride] = _mm512_cmplt_epu32_mask(_mm512_and_si512(words[w], low_half), limit);
    out[(2 * w + 1) * stride] = _mm512_cmplt_epu32_mask(_mm512_srli_epi32(words[w], 16), limit);
  }
}
#else
void dropout_bits(uint64_t key, uint32_t threshold, uint32_t b, uint32_t h, uint32_t i, uint32_t block,
                  uint16_t* out, int64_t stride) {
  uint32_t bits[8] = {};
  for (uint32_t lane = 0; lane < 16; ++lane) {
    uint32_t c[4] = {block * 16 + lane, i, h, b};
    auto k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
    for (int round = 0; round < kPhiloxRounds; ++round) {
      const uint64_t p0 = static_cast<uint64_t>(kPhiloxM0) * c[0],
                     p1 = static_cast<uint64_t>(kPhiloxM1) * c[2];
      const uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0,
                     n2 = static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1;
      c[0] = n0;
      c[1] = static_cast<uint32_t>(p1);
      c[2] = n2;
      c[3] = static_cast<uint32_t>(p0);
      k0 += kPhiloxW0;
      k1 += kPhiloxW1;
    }
    for (uint32_t half = 0; half < 8; ++half) {
      bits[half] |= static_cast<uint32_t>(((c[half / 2] >> (16 * (half % 2))) & 0xffffu) < threshold) << lane;
    }
  }
  for (int half = 0; half < 8; ++half) out[half * stride] = static_cast<uint16_t>(bits[half]);
}
#endif
