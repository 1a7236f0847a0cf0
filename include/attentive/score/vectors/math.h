#ifndef ATTENTIVE_SCORE_MATH_H
#define ATTENTIVE_SCORE_MATH_H

// Functions of vectors: powers of two, reciprocals, tanh.

#include <attentive/score/vectors/constants.h>
#include <attentive/score/vectors/vector.h>

ATTENTIVE_SIMD_BEGIN

/// 2^f for f in [-0.5, 0.5]. The polynomials are minimax in the relative error: degree 5 with an error of
/// 8e-8, or degree 3 with 8e-5. (A lambda would not have the target attribute of its function.)
template <bool kHalf>
inline Vec exp2_of_rest(Vec f) {
  if constexpr (kHalf) {
    Vec p = all(5.508868381e-2f);
    p = p * f + 2.426040515e-1f;
    p = p * f + 6.932762417e-1f;
    return p * f + 9.999289404e-1f;
  } else {
    Vec p = all(1.326697039e-3f);
    p = p * f + 9.675459746e-3f;
    p = p * f + 5.550742616e-2f;
    p = p * f + 2.402212175e-1f;
    p = p * f + 6.931469492e-1f;
    return p * f + 1.000000071f;
  }
}

/// 2^t for t up to about 0: t is rounded to an integer, a polynomial takes the rest in [-0.5, 0.5], and the
/// integer scales the result. kHalf: the result is rounded to bfloat16 afterwards, so that a shorter
/// polynomial will do. Results below the smallest normal number are 0, given FlushTiny; NaN stays NaN.
template <bool kHalf = false>
inline Vec exp2(Vec t) {
#if ATTENTIVE_SIMD_IS_AVX512
  const __m512 r =
      _mm512_maskz_roundscale_ps(kEveryLane, (__m512)t, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __mmask16 normal = _mm512_cmp_ps_mask((__m512)t, (__m512)all(-126.0f), _CMP_NLT_UQ);
  return (Vec)_mm512_maskz_scalef_ps(normal, (__m512)exp2_of_rest<kHalf>(t - (Vec)r), r);
#else
  // Adding this number to t leaves the rounded t, plus the bias of an exponent, in the lowest bits of the
  // sum. For -127 the biased exponent is 0, so the result is 0.
  const Vec magic = all(12582912.0f + 127.0f);
  const Vec floored = larger_or_nan(all(-127.0f), t);
  const Vec sum = floored + magic;
  return exp2_of_rest<kHalf>(floored - (sum - magic)) * (Vec)((Int)sum << 23);
#endif
}

inline Vec magnitude(Vec x) {
  return (Vec)((Int)x & 0x7fffffff);
}

/// 1 / x for normal numbers, accurate to one or two units in the last place.
inline Vec reciprocal(Vec x) {
#if ATTENTIVE_SIMD_IS_AVX512
  const Vec guess =
      (Vec)_mm512_maskz_rcp14_ps(kEveryLane, (__m512)x);  // 14 bits, which a Newton step doubles
  return guess * (2.0f - x * guess);
#else
  return 1.0f / x;
#endif
}

/// tanh by 2^(2 x log2 e): accurate to a few ulp of 1, which is what the scores need.
inline Vec tanh(Vec x) {
  const Vec a = magnitude(x);
  const Vec e = exp2(a * (-2.0f * kLog2e));
  // For small arguments the numerator of the quotient would cancel, so a series is used.
  const Vec x2 = x * x;
  const Vec series = x * (1.0f + x2 * (-1.0f / 3.0f + x2 * (2.0f / 15.0f + x2 * (-17.0f / 315.0f))));
  const Vec quotient = (1.0f - e) * reciprocal(1.0f + e);
  const Int sign = (Int)x & static_cast<int32_t>(0x80000000u);
  return a < all(0.15f) ? series : (Vec)((Int)quotient | sign);
}

/// A number that the compiler cannot fuse with a following operation.
inline Vec rounded(Vec x) {
#if ATTENTIVE_SIMD_WIDTH == 16 && !ATTENTIVE_SIMD_IS_AVX512
  __asm__("" : "+m"(x));  // no register is wide enough
#elif ATTENTIVE_SIMD_WIDTH == 8 && !ATTENTIVE_SIMD_IS_AVX2
  __asm__("" : "+m"(x));
#elif defined(__x86_64__)
  __asm__("" : "+v"(x));
#elif defined(__aarch64__)
  __asm__("" : "+w"(x));
#endif
  return x;
}

/// A rounded product, which the compiler cannot fuse with a following sum.
inline Vec product(Vec x, float factor) {
  return rounded(x * factor);
}

ATTENTIVE_SIMD_END

#endif
