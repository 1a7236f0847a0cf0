#ifndef ATTENTIVE_SCORE_MATH_H
#define ATTENTIVE_SCORE_MATH_H

// Functions of vectors: powers of two, reciprocals, tanh; and over the whole range of float, which scores may
// call: accurate to a few units in the last place.

#include <attentive/score/vector_set.h>
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

constexpr float kInf = __builtin_inff(), kNan = __builtin_nanf("");

/// Whether x is NaN, also in a source that is compiled with -ffast-math.
inline Int is_nan(Vec x) {
  return (Int)magnitude(x) > 0x7f800000;
}

/// The integer nearest to x, for |x| < 2^22.
inline Vec nearest(Vec x) {
#if ATTENTIVE_SIMD_IS_AVX512
  return (Vec)_mm512_maskz_roundscale_ps(kEveryLane, (__m512)x,
                                         _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#else
  const Vec magic = all(12582912.0f);
  const Vec sum = rounded(x + magic);
  return sum - magic;
#endif
}

inline Vec floor_of(Vec x) {
#if ATTENTIVE_SIMD_IS_AVX512
  return (Vec)_mm512_maskz_roundscale_ps(kEveryLane, (__m512)x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
#elif ATTENTIVE_SIMD_IS_AVX2
  return (Vec)_mm256_floor_ps((__m256)x);
#elif ATTENTIVE_SIMD_IS_NEON
  return (Vec)vrndmq_f32((float32x4_t)x);
#else
  // From 2^23 on, every number is an integer; so are NaN and Inf for this purpose.
  const Vec small = select(magnitude(x) < all(8388608.0f), x, all(0.0f));
  const Vec cut = __builtin_convertvector(__builtin_convertvector(small, Int), Vec);
  const Vec down = cut - select(cut > small, all(1.0f), all(0.0f));
  return select(magnitude(x) < all(8388608.0f), down, x);
#endif
}

inline Vec sqrt_of(Vec x) {
#if ATTENTIVE_SIMD_IS_AVX512
  return (Vec)_mm512_maskz_sqrt_ps(kEveryLane, (__m512)x);
#elif ATTENTIVE_SIMD_IS_AVX2
  return (Vec)_mm256_sqrt_ps((__m256)x);
#elif ATTENTIVE_SIMD_IS_NEON
  return (Vec)vsqrtq_f32((float32x4_t)x);
#else
  for (int i = 0; i < kWidth; ++i) x[i] = __builtin_sqrtf(x[i]);
  return x;
#endif
}

/// 2^n for integers n in [-126, 127].
inline Vec power_of_two(Int n) {
  return (Vec)((n + 127) << 23);
}

/// p 2^n for integers n: 0 or infinite where the product is too small or too large.
inline Vec scaled(Vec p, Vec n) {
#if ATTENTIVE_SIMD_IS_AVX512
  return (Vec)_mm512_maskz_scalef_ps(kEveryLane, (__m512)p, (__m512)n);
#else
  // In two steps, since 2^n itself may be too large or too small.
  const Int whole = __builtin_convertvector(n, Int), half = whole >> 1;
  return p * power_of_two(half) * power_of_two(whole - half);
#endif
}

/// e^r for |r| <= ln(2) / 2 by a minimax polynomial, whose relative error is 4e-9.
inline Vec exp_of_rest(Vec r) {
  Vec p = all(1.38637272e-3f);
  p = p * r + 8.36754218e-3f;
  p = p * r + 4.16672416e-2f;
  p = p * r + 1.66665331e-1f;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  return p * r + 1.0f;
}

/// e^x for x in [-104, 89], by e^x = 2^n e^r.
inline Vec exp_in_range(Vec x) {
  const Vec n = nearest(x * kLog2e);
  return scaled(exp_of_rest((x - n * 0.693359375f) + n * 2.12194440e-4f), n);
}

/// `y`, or NaN if `x` is NaN: with -ffast-math, a compiler may assume that neither is.
inline Vec nan_of([[maybe_unused]] Vec x, Vec y) {
#if __FINITE_MATH_ONLY__
  return select(is_nan(x), x, y);
#else
  return y;
#endif
}

/// x, or the limit that it is beyond. NaN stays NaN.
inline Vec clamped(float low, float high, Vec x) {
  return nan_of(x, smaller_or_nan(all(high), larger_or_nan(all(low), x)));
}

inline Vec exp_of(Vec x) {
  return exp_in_range(clamped(-104.0f, 89.0f, x));
}

/// ln x by x = 2^n m with m near 1 and ln m = 2 artanh((m - 1) / (m + 1)).
inline Vec log_of(Vec x) {
  const Int tiny = x < all(1.17549435e-38f);
  const Int bits = (Int)select(tiny, x * 8388608.0f, x);
  const Int n = ((bits - 0x3f3504f3) >> 23);  // m in [sqrt(1/2), sqrt(2))
  const Vec m = (Vec)(bits - (n << 23));
  const Vec e = __builtin_convertvector(n, Vec) - select(tiny, all(23.0f), all(0.0f));
  const Vec f = m - 1.0f, s = f / (2.0f + f), s2 = s * s;
  const Vec series = s2 * (2.0f / 3.0f + s2 * (2.0f / 5.0f + s2 * (2.0f / 7.0f + s2 * (2.0f / 9.0f))));
  // 2 s = f - s f, which keeps the digits of f
  const Vec rest = s * (series - f) - e * 2.12194440e-4f;
  Vec y = (f + rest) + e * 0.693359375f;
  y = select(x == all(kInf), x, y);
  y = select(x == all(0.0f), all(-kInf), y);
  return select(x < all(0.0f), all(kNan), select(is_nan(x), x, y));
}

/// ln(1 + x) for x in [0, 1]: the error of the rounded sum is divided out.
inline Vec log1p_of(Vec x) {
  const Vec sum = rounded(1.0f + x), added = rounded(sum - 1.0f);
  return rounded(select(added == all(0.0f), x, log_of(sum) * (x / added)));
}

/// ln(1 + e^x)
inline Vec softplus_of(Vec x) {
  const Vec rest = log1p_of(exp_of(-magnitude(x)));
  return select(x < all(0.0f), all(0.0f), x) + rest;
}

#if ATTENTIVE_SIMD_IS_AVX512
/// 2^(j / 16)
alignas(64) constexpr float kPowers[16] = {
    1.0f,        1.04427373f, 1.09050775f, 1.13878858f, 1.18920708f, 1.24185777f, 1.29683959f, 1.35425556f,
    1.41421354f, 1.47682619f, 1.54221082f, 1.61049032f, 1.68179286f, 1.75625217f, 1.8340081f,  1.91520655f,
};

/// e^-x for x in [-88, 88], by e^-x = 2^n e^r with n a multiple of 1 / 16: a table holds the fractions of
/// powers, and |r| <= ln(2) / 32 needs a polynomial of degree 3, whose relative error is 9e-9.
inline Vec exp_of_negative(Vec x) {
  const Vec magic = all(786432.0f);  // the last bit of a number of this size is 1 / 16
  const Vec sum = rounded(x * -kLog2e + magic), n = sum - magic;
  const Vec r = n * 2.12194440e-4f - (x + n * 0.693359375f);
  const auto power = (Vec)_mm512_maskz_permutexvar_ps(kEveryLane, (__m512i)sum, (__m512)load<Vec>(kPowers));
  return scaled(power + power * (r * (1.0f + r * (0.5f + r * (1.0f / 6.0f)))), n);
}
#else
/// e^-x for x in [-88, 88], by e^-x = 2^n e^r; 0 for n = -127.
inline Vec exp_of_negative(Vec x) {
  // Adding this number to n leaves n, plus the bias of an exponent, in the lowest bits of the sum.
  const Vec magic = all(12582912.0f + 127.0f);
  const Vec sum = rounded(x * -kLog2e + magic), n = sum - magic;
  const Vec r = n * 2.12194440e-4f - (x + n * 0.693359375f);
  return exp_of_rest(r) * (Vec)((Int)sum << 23);
}
#endif

/// 1 / (1 + e^-x); 0 where that is smaller than any normal number.
inline Vec sigmoid_of(Vec x) {
  // For x below -88, the sum means nothing.
  const Vec inverse = 1.0f / (1.0f + exp_of_negative(nan_of(x, smaller_or_nan(all(88.0f), x))));
  return select(x < all(-87.3365f), all(0.0f), inverse);
}

/// The rest of x after its nearest multiple n of pi / 2, for |x| < 2^13, where n times each part of pi / 2 is
/// exact.
inline Vec rest_of_quarter(Vec x, Vec n) {
  return ((x - n * 1.5703125f) - n * 4.837512969970703125e-4f) - n * 7.549789948768648e-8f;
}

inline Vec sine_of_rest(Vec r, Vec r2) {
  return r +
         r * r2 * (-1.0f / 6.0f + r2 * (1.0f / 120.0f + r2 * (-1.0f / 5040.0f + r2 * (1.0f / 362880.0f))));
}

inline Vec cosine_of_rest(Vec r2) {
  const Vec series = 1.0f / 24.0f + r2 * (-1.0f / 720.0f + r2 * (1.0f / 40320.0f - r2 * (1.0f / 3628800.0f)));
  return 1.0f + r2 * (-0.5f + r2 * series);
}

/// sin(x + quarters * pi / 2)
inline Vec sine_of(Vec x, int32_t quarters) {
  const Vec n = nearest(x * 0.636619772367581f);
  const Vec r = rest_of_quarter(x, n), r2 = r * r;
  const Int quarter = __builtin_convertvector(n, Int) + quarters;
  const Vec y = select((quarter & 1) != 0, cosine_of_rest(r2), sine_of_rest(r, r2));
  Vec result = (Vec)((Int)y ^ ((quarter & 2) << 30));
  const Int small = magnitude(x) < all(8192.0f);
  for (int i = 0; i < kWidth; ++i) {
    if (small[i] == 0) result[i] = quarters == 0 ? __builtin_sinf(x[i]) : __builtin_cosf(x[i]);
  }
  return result;
}

typedef double Wide __attribute__((vector_size(kWidth * 8)));

/// ln x in double for positive finite x, with an error of 1e-11. (Doubles are returned in memory: compilers
/// warn of results that are wider than the plain registers.)
inline void wide_log_of(Vec x, Wide& result) {
  const Int tiny = x < all(1.17549435e-38f);
  const Int bits = (Int)select(tiny, x * 8388608.0f, x);
  const Int n = ((bits - 0x3f3504f3) >> 23);
  const Vec e = __builtin_convertvector(n, Vec) - select(tiny, all(23.0f), all(0.0f)),
            m = (Vec)(bits - (n << 23));
  const Wide f = __builtin_convertvector(m, Wide) - 1.0, s = f / (2.0 + f), s2 = s * s;
  Wide p = s2 * (1.0 / 13.0) + 1.0 / 11.0;
  p = p * s2 + 1.0 / 9.0;
  p = p * s2 + 1.0 / 7.0;
  p = p * s2 + 1.0 / 5.0;
  p = p * s2 + 1.0 / 3.0;
  result = 2.0 * s * (1.0 + p * s2) + __builtin_convertvector(e, Wide) * 0.693147180559945309;
}

/// x^(y - less) by e^((y - less) ln x), whose exponent needs more digits than a float has. Special values are
/// those of C: of negative x, only whole powers are numbers.
inline Vec pow_of(Vec x, Vec y, float less = 0.0f) {
  const Vec a = magnitude(x);
  Wide t;
  wide_log_of(a, t);
  t = (__builtin_convertvector(y, Wide) - double{less}) * t;
  y = y - less;
  const Vec exponent = __builtin_convertvector(t, Vec);
  const Vec rest = __builtin_convertvector(t - __builtin_convertvector(exponent, Wide), Vec);
  // Beyond this range the power is 0 or Inf, whatever the rest.
  const Vec digits = select(magnitude(exponent) < all(104.0f), 1.0f + rest, all(1.0f));
  const Vec finite = exp_of(exponent) * digits;
  const Vec edge = exp_of(y * select(a == all(0.0f), all(-kInf), a));  // of 0, Inf and NaN
  const Vec usual = select((a > all(0.0f)) & (a < all(kInf)), finite, edge);
  const Vec size = select((a == all(1.0f)) | (y == all(0.0f)), all(1.0f), usual);
  const Vec half = y * 0.5f;
  const Int whole = floor_of(y) == y, odd = whole & (floor_of(half) != half), minus = (Int)x < 0;
  const Vec result = select(minus & odd, -size, size);
  const Int none = (x < all(0.0f)) & (a < all(kInf)) & ~whole;
  return select((x == all(1.0f)) | (y == all(0.0f)), all(1.0f), select(none | is_nan(y), all(kNan), result));
}

ATTENTIVE_SIMD_END

#endif
