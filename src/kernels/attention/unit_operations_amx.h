#pragma once

// The operations of units on AMX, AVX512-FP16 and AVX512-VBMI.

#if defined(__AVX512FP16__)

#include <immintrin.h>

#include "kernels/gemm/amx_tiles.h"
#include "kernels/gemm/products.h"

namespace attentive::kernels::cpu {
namespace {

struct Ops : AmxTiles {
  using Floats = __m512;
  using Words = __m512i;
  static void begin() { amx_begin(); }
  static void end() { amx_done(); }

  ATTENTIVE_ALWAYS_INLINE static Floats load(const float* p) { return _mm512_loadu_ps(p); }
  ATTENTIVE_ALWAYS_INLINE static void store(float* p, Floats x) { _mm512_storeu_ps(p, x); }
  ATTENTIVE_ALWAYS_INLINE static Words load_words(const bf16_t* p) { return _mm512_loadu_si512(p); }
  ATTENTIVE_ALWAYS_INLINE static void store(bf16_t* p, Words x) { _mm512_storeu_si512(p, x); }
  ATTENTIVE_ALWAYS_INLINE static Floats all(float x) { return _mm512_set1_ps(x); }
  ATTENTIVE_ALWAYS_INLINE static Words words(uint16_t x) {
    return _mm512_set1_epi16(static_cast<int16_t>(x));
  }
  ATTENTIVE_ALWAYS_INLINE static Words halves(float x) {
    return _mm512_castph_si512(_mm512_set1_ph(static_cast<_Float16>(x)));
  }
  ATTENTIVE_ALWAYS_INLINE static Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
  ATTENTIVE_ALWAYS_INLINE static Floats times(Floats a, Floats b) { return a * b; }
  ATTENTIVE_ALWAYS_INLINE static Floats inverse(Floats x) { return all(1.0f) / x; }
  // So many bits from the lowest on, at most 255.
  ATTENTIVE_ALWAYS_INLINE static uint64_t first_bits(int32_t n) {
    return _bzhi_u64(~uint64_t{0}, static_cast<uint32_t>(n > 0 ? n : 0));
  }
  // The larger numbers, where a bit of `shown` is set.
  ATTENTIVE_ALWAYS_INLINE static Floats larger(Floats top, Floats x, uint16_t shown) {
    return _mm512_mask_max_ps(top, shown, x, top);
  }
  // `of` the numbers of each of 16 vectors: of those 8 apart, then 4, 2 and 1.
  template <class Of>
  ATTENTIVE_ALWAYS_INLINE static Floats of_each(const Floats (&x)[16], const Of& of) {
    Floats halves[8], quarters[4], pairs[2];
    for (int i = 0; i < 8; ++i) {
      const Floats a = x[i + (i & 4)], b = x[i + (i & 4) + 4];
      halves[i] = of(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
    }
    for (int i = 0; i < 4; ++i) {
      const Floats a = halves[i], b = halves[i + 4];
      quarters[i] = of(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
    }
    const auto wide = [](Floats a) { return _mm512_castps_pd(a); };
    const auto narrow = [](__m512d a) { return _mm512_castpd_ps(a); };
    for (int i = 0; i < 2; ++i) {
      const __m512d a = wide(quarters[2 * i]), b = wide(quarters[2 * i + 1]);
      pairs[i] = of(narrow(_mm512_unpacklo_pd(a, b)), narrow(_mm512_unpackhi_pd(a, b)));
    }
    return of(_mm512_shuffle_ps(pairs[0], pairs[1], 0x88), _mm512_shuffle_ps(pairs[0], pairs[1], 0xdd));
  }
  ATTENTIVE_ALWAYS_INLINE static Floats largest_of_each(const Floats (&x)[16]) {
    return of_each(x, [](Floats a, Floats b) { return _mm512_max_ps(a, b); });
  }
  ATTENTIVE_ALWAYS_INLINE static Floats sum_of_each(const Floats (&x)[16]) {
    return of_each(x, [](Floats a, Floats b) { return a + b; });
  }
  ATTENTIVE_ALWAYS_INLINE static Floats nearest(Floats x) {
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT);
  }
  // One bit for each number whose magnitude is at most `bound`.
  ATTENTIVE_ALWAYS_INLINE static uint32_t within(Floats x, float bound) {
    return _mm512_cmp_ps_mask(_mm512_abs_ps(x), _mm512_set1_ps(bound), _CMP_LE_OQ);
  }
  ATTENTIVE_ALWAYS_INLINE static uint32_t below(Floats x, float bound) {
    return _mm512_cmp_ps_mask(x, _mm512_set1_ps(bound), _CMP_LT_OQ);
  }
  ATTENTIVE_ALWAYS_INLINE static void store(float* p, Floats x, uint32_t which) {
    _mm512_mask_storeu_ps(p, static_cast<__mmask16>(which), x);
  }

  // The lowest 16 bits of sums that begin at 2^23; less becomes 0, and more the largest number. The order is
  // the instruction's: four of the first, four of the second, and so on.
  ATTENTIVE_ALWAYS_INLINE static Words saturated(Floats a, Floats b) {
    const __m512i base = _mm512_set1_epi32(0x4b000000);
    return _mm512_packus_epi32(_mm512_sub_epi32(_mm512_castps_si512(a), base),
                               _mm512_sub_epi32(_mm512_castps_si512(b), base));
  }
  // The bits of `a` where those of `which` are set, else those of `b`.
  ATTENTIVE_ALWAYS_INLINE static Words select(Words which, Words a, Words b) {
    return _mm512_ternarylogic_epi32(which, a, b, 0xca);
  }
  ATTENTIVE_ALWAYS_INLINE static Words half_fma(Words a, Words b, Words c) {
    return _mm512_castph_si512(
        _mm512_fmadd_ph(_mm512_castsi512_ph(a), _mm512_castsi512_ph(b), _mm512_castsi512_ph(c)));
  }
  // A quarter of each number; the uppermost two bits are undefined. (A shift would take the port of the
  // products.)
  ATTENTIVE_ALWAYS_INLINE static Words quarter(Words x) {
    return _mm512_multishift_epi64_epi8(_mm512_set1_epi64(0x3a322a221a120a02), x);
  }
  // Zeros but for the keys whose bits are set.
  ATTENTIVE_ALWAYS_INLINE static Words keep(Words x, uint32_t shown) {
    return _mm512_maskz_mov_epi16(_pdep_u32(shown, 0x0f0f0f0f) | _pdep_u32(shown >> 16, 0xf0f0f0f0), x);
  }
  // Adds the two numbers of bf16 of each pair.
  ATTENTIVE_ALWAYS_INLINE static Floats add_pairs(Floats total, Words x) {
    return _mm512_dpbf16_ps(total, (__m512bh)x, (__m512bh)words(0x3f80));
  }
  ATTENTIVE_ALWAYS_INLINE static Words rounded(Floats first, Floats second) {
    return (__m512i)_mm512_cvtne2ps_pbh(second, first);
  }
  ATTENTIVE_ALWAYS_INLINE static void store_rounded(bf16_t* to, Floats first, Floats second) {
    store(to, rounded(first, second));
  }
  // The numbers of bf16 that `saturated` made of its first and second operand, and all of them in that order.
  ATTENTIVE_ALWAYS_INLINE static Floats first_half(Words x) {
    return _mm512_castsi512_ps(_mm512_unpacklo_epi16(words(0), x));
  }
  ATTENTIVE_ALWAYS_INLINE static Floats second_half(Words x) {
    return _mm512_castsi512_ps(_mm512_unpackhi_epi16(words(0), x));
  }
  ATTENTIVE_ALWAYS_INLINE static Words in_order(Words x) {
    return _mm512_permutexvar_epi64(_mm512_set_epi64(7, 5, 3, 1, 6, 4, 2, 0), x);
  }
  ATTENTIVE_ALWAYS_INLINE static Floats keep(Floats x, uint16_t shown) {
    return _mm512_maskz_mov_ps(shown, x);
  }
  // One bit for each of 32 numbers: whether its bit `bit` is set.
  ATTENTIVE_ALWAYS_INLINE static uint32_t bits_of(const uint16_t* from, int bit) {
    return _mm512_test_epi16_mask(load_words(from), words(static_cast<uint16_t>(1 << bit)));
  }

  ATTENTIVE_ALWAYS_INLINE static Words larger_magnitudes(Words top, Words x) {
    return _mm512_max_epu16(top, _mm512_and_si512(x, words(0x7fff)));
  }
  ATTENTIVE_ALWAYS_INLINE static bool any_from(Words x, uint16_t bound) {
    return _mm512_cmpge_epu16_mask(x, words(bound)) != 0;
  }
  ATTENTIVE_ALWAYS_INLINE static Words either(Words a, Words b) { return _mm512_or_si512(a, b); }
  ATTENTIVE_ALWAYS_INLINE static bool any_bits(Words x, uint16_t bits) {
    return _mm512_test_epi16_mask(x, words(bits)) != 0;
  }
  static uint64_t bits(const uint8_t* bytes, int64_t count) {
    const __mmask64 all = ~__mmask64{0} >> (64 - count);
    const __m512i x = _mm512_maskz_loadu_epi8(all, bytes);
    return _mm512_test_epi8_mask(x, x);
  }
  // Transposes 16 rows of 16 pairs.
  ATTENTIVE_ALWAYS_INLINE static void transpose(const bf16_t* from, int64_t stride, bf16_t* to) {
    const auto quarters = [&](int64_t row, int64_t column) {
      const auto of = [&](int64_t r) {
        return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + (row + r) * stride + column));
      };
      __m512i x = _mm512_castsi128_si512(of(0));
      x = _mm512_inserti32x4(x, of(4), 1);
      x = _mm512_inserti32x4(x, of(8), 2);
      return _mm512_inserti32x4(x, of(12), 3);
    };
    for (int64_t g = 0; g < 4; ++g) {
      const __m512i a = quarters(0, 8 * g), b = quarters(1, 8 * g), c = quarters(2, 8 * g),
                    d = quarters(3, 8 * g);
      const __m512i low = _mm512_unpacklo_epi32(a, b), high = _mm512_unpackhi_epi32(a, b);
      const __m512i low2 = _mm512_unpacklo_epi32(c, d), high2 = _mm512_unpackhi_epi32(c, d);
      _mm512_storeu_si512(to + 128 * g, _mm512_unpacklo_epi64(low, low2));
      _mm512_storeu_si512(to + 128 * g + 32, _mm512_unpackhi_epi64(low, low2));
      _mm512_storeu_si512(to + 128 * g + 64, _mm512_unpacklo_epi64(high, high2));
      _mm512_storeu_si512(to + 128 * g + 96, _mm512_unpackhi_epi64(high, high2));
    }
  }
  // Pairs of the numbers of two rows: 16 to `first`, 16 to `second`.
  ATTENTIVE_ALWAYS_INLINE static void interleave(Words x, Words y, bf16_t* first, bf16_t* second) {
    const __m512i low = _mm512_unpacklo_epi16(x, y), high = _mm512_unpackhi_epi16(x, y);
    const __m512i front = _mm512_set_epi64(11, 10, 3, 2, 9, 8, 1, 0);
    store(first, _mm512_permutex2var_epi64(low, front, high));
    store(second, _mm512_permutex2var_epi64(low, _mm512_add_epi64(front, _mm512_set1_epi64(4)), high));
  }
};

}  // namespace
}  // namespace attentive::kernels::cpu

#endif
