// Part of simd_impl.h, inside its namespace: vectors, the exponential, logits and visibility.
#pragma once

constexpr int kWidth = ATTENTIVE_SIMD_WIDTH;
constexpr float kLog2e = 1.44269504088896340736f;
constexpr float kMinusInfinity = -__builtin_inff();

typedef float Vec __attribute__((vector_size(kWidth * 4)));
typedef int32_t Int __attribute__((vector_size(kWidth * 4)));
typedef uint32_t Uint __attribute__((vector_size(kWidth * 4)));
typedef uint16_t Half __attribute__((vector_size(kWidth * 2)));
typedef uint8_t Byte __attribute__((vector_size(kWidth)));

template <class V, class T>
inline V load(const T* p) {
  static_assert(sizeof(V) == sizeof(T) * kWidth);
  V v;
  std::memcpy(&v, p, sizeof(V));
  return v;
}
template <class V, class T>
inline void store(T* p, V v) {
  std::memcpy(p, &v, sizeof(V));
}
inline Vec all(float x) {
  return x - Vec{};
}
inline Int all(int32_t x) {
  return x - Int{};
}
inline Uint all(uint32_t x) {
  return x - Uint{};
}
inline Int lanes() {
  static constexpr int32_t numbers[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  Int v;
  std::memcpy(&v, numbers, sizeof(v));
  return v;
}
inline Vec lanes_as_floats() {
  return __builtin_convertvector(lanes(), Vec);
}
inline Vec select(Int condition, Vec yes, Vec no) {
  return condition ? yes : no;
}
// The larger one; a NaN among `x` does not count.
inline Vec larger(Vec x, Vec top) {
#if ATTENTIVE_SIMD_IS_AVX512
  return (Vec)_mm512_max_ps((__m512)x, (__m512)top);  // the second operand if either is NaN
#elif ATTENTIVE_SIMD_IS_AVX2
  return (Vec)_mm256_max_ps((__m256)x, (__m256)top);
#else
  return x > top ? x : top;
#endif
}
// `v` where the bit of the lane is set, else 0.
inline Vec where_bits(uint32_t bits, Vec v) {
#if ATTENTIVE_SIMD_IS_AVX512
  return (Vec)_mm512_maskz_mov_ps(static_cast<__mmask16>(bits), (__m512)v);
#else
  return (((static_cast<int32_t>(bits) - Int{}) >> lanes()) & 1) != 0 ? v : all(0.0f);
#endif
}
#if ATTENTIVE_SIMD_IS_AVX512
inline float sum(Vec v) {
  return _mm512_reduce_add_ps((__m512)v);
}
inline float largest(Vec v) {
  return _mm512_reduce_max_ps((__m512)v);
}
#elif ATTENTIVE_SIMD_IS_AVX2
inline float sum(Vec v) {
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128((__m256)v), _mm256_extractf128_ps((__m256)v, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
inline float largest(Vec v) {
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128((__m256)v), _mm256_extractf128_ps((__m256)v, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}
#else
inline float sum(Vec v) {
  for (int half = kWidth / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) v[i] += v[i + half];
  }
  return v[0];
}
inline float largest(Vec v) {
  float result = v[0];
  for (int i = 1; i < kWidth; ++i) result = v[i] > result ? v[i] : result;
  return result;
}
#endif

// Parts of a vector at the end of a row go through a buffer, so that no byte beyond the row is touched.
inline Vec load_part(const float* p, int64_t n, float fill = 0.0f) {
  if (n >= kWidth) return load<Vec>(p);
  Vec v = all(fill);
  std::memcpy(&v, p, static_cast<size_t>(n) * sizeof(float));
  return v;
}
inline void store_part(float* p, Vec v, int64_t n) {
  if (n >= kWidth) return store(p, v);
  std::memcpy(p, &v, static_cast<size_t>(n) * sizeof(float));
}

inline Vec widen(Half h) {
  return (Vec)(__builtin_convertvector(h, Uint) << 16);
}
// Round to nearest, ties to even; a NaN stays one.
inline Half narrow(Vec x) {
  const Uint bits = (Uint)x;
  const Uint rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const Uint nan = (bits >> 16) | 0x40u;
  return __builtin_convertvector((x == x) ? rounded : nan, Half);
}
// The same by one instruction where there is one; numbers below the smallest normal one may become 0.
inline Half narrow_fast(Vec x) {
#if ATTENTIVE_SIMD_IS_AVX512 && defined(__AVX512BF16__)
  return (Half)_mm512_cvtneps_pbh((__m512)x);
#else
  return narrow(x);
#endif
}
inline void store_narrow_pair(bf16_t* p, Vec low, Vec high) {
#if ATTENTIVE_SIMD_IS_AVX512 && defined(__AVX512BF16__)
  const auto both = _mm512_cvtne2ps_pbh((__m512)high, (__m512)low);
  std::memcpy(p, &both, sizeof(both));
#else
  store(p, narrow_fast(low));
  store(p + kWidth, narrow_fast(high));
#endif
}
inline Vec load16_part(const bf16_t* p, int64_t n) {
  if (n >= kWidth) return widen(load<Half>(p));
  Half h = {};
  std::memcpy(&h, p, static_cast<size_t>(n) * sizeof(bf16_t));
  return widen(h);
}
inline void store16_part(bf16_t* p, Vec v, int64_t n) {
  const Half h = narrow(v);
  if (n >= kWidth) return store(p, h);
  std::memcpy(p, &h, static_cast<size_t>(n) * sizeof(bf16_t));
}

// 2^t for t <= 0 or so: round to the nearest integer, a polynomial on [-0.5, 0.5], scale by the exponent. The
// relative error is 8e-8, or 8e-5 where the result is rounded to bfloat16. Below the smallest normal number
// it is 0, under FlushTiny; NaN stays NaN.
template <bool kHalf = false>
inline Vec exp2(Vec t) {
  const auto polynomial = [](Vec f) {
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
  };
#if ATTENTIVE_SIMD_IS_AVX512
  const __m512 r = _mm512_roundscale_ps((__m512)t, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __mmask16 normal = _mm512_cmp_ps_mask((__m512)t, (__m512)all(-126.0f), _CMP_NLT_UQ);
  return (Vec)_mm512_maskz_scalef_ps(normal, (__m512)polynomial(t - (Vec)r), r);
#else
  // Added to t, this number leaves the rounded t in the lowest bits of the sum, with the bias of an exponent.
  // At -127 the exponent is that of 0.
  const Vec magic = all(12582912.0f + 127.0f);
  const Vec floored = larger(all(-127.0f), t);
  const Vec sum = floored + magic;
  return polynomial(floored - (sum - magic)) * (Vec)((Int)sum << 23);
#endif
}

inline Vec magnitude(Vec x) {
  return (Vec)((Int)x & 0x7fffffff);
}

// 1 / x for normal numbers, to the last bit or two.
inline Vec reciprocal(Vec x) {
#if ATTENTIVE_SIMD_IS_AVX512
  const Vec guess = (Vec)_mm512_rcp14_ps((__m512)x);  // 14 bits; a step of Newton's doubles them
  return guess * (2.0f - x * guess);
#else
  return 1.0f / x;
#endif
}

// tanh by 2^(2 x log2 e): accurate to a few ulp of 1, which is what the scores need.
inline Vec tanh(Vec x) {
  const Vec a = magnitude(x);
  const Vec e = exp2(a * (-2.0f * kLog2e));
  // For small arguments the quotient cancels; the series does not.
  const Vec x2 = x * x;
  const Vec series = x * (1.0f + x2 * (-1.0f / 3.0f + x2 * (2.0f / 15.0f + x2 * (-17.0f / 315.0f))));
  const Vec quotient = (1.0f - e) * reciprocal(1.0f + e);
  const Int sign = (Int)x & static_cast<int32_t>(0x80000000u);
  return a < all(0.15f) ? series : (Vec)((Int)quotient | sign);
}

// The product itself, not as part of a fused sum.
inline Vec product(Vec x, float factor) {
  Vec result = x * factor;
#if ATTENTIVE_SIMD_WIDTH == 16 && !ATTENTIVE_SIMD_IS_AVX512
  __asm__("" : "+m"(result));  // no register is so wide
#elif defined(__x86_64__)
  __asm__("" : "+v"(result));
#elif defined(__aarch64__)
  __asm__("" : "+w"(result));
#endif
  return result;
}

// Raw scores to natural logits, rounded step by step: the backward pass takes the maximum of the forward pass
// from them, so both must come to the same bits. `capped` receives tanh(x / softcap) for the backward pass.
inline Vec logits(const ScoreRule& rule, Vec raw, Vec distance, const float* bias, int64_t n, Vec* capped) {
  Vec x = product(raw, rule.scale);
  if (rule.softcap != 0.0f) {
    const float most = 3.0e38f, inverse = 1.0f / rule.softcap;
    const Vec t = tanh(x * (inverse < most ? inverse : most));
    if (capped) *capped = t;
    x = product(t, rule.softcap);
  }
  if (bias) x = x + load_part(bias, n);
  if (rule.slope != 0.0f) x = x - product(magnitude(distance), rule.slope);
  return x;
}

inline Int visible(int64_t column, int64_t lo, int64_t hi, const float* bias, const uint8_t* keep,
                   int64_t n) {
  const Int at = lanes() + static_cast<int32_t>(column);
  Int result = (at >= static_cast<int32_t>(lo)) & (at < static_cast<int32_t>(hi));
  if (bias) result &= load_part(bias, n, kMinusInfinity) != all(kMinusInfinity);
  if (keep) {
    Byte bytes = {};
    std::memcpy(&bytes, keep, static_cast<size_t>(n < kWidth ? n : kWidth));
    result &= __builtin_convertvector(bytes, Int) != 0;
  }
  return result;
}
