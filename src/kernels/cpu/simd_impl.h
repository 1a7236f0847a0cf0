// The vector code of the native kernel, for vectors of kWidth floats. Included by one source file per
// instruction set, which defines ATTENTIVE_SIMD_NAMESPACE and ATTENTIVE_SIMD_WIDTH. It uses the compilers'
// vector extensions (GCC and Clang), so that one source serves every width.

#include <cstring>

#if defined(__AVX512F__) && ATTENTIVE_SIMD_WIDTH == 16
#define ATTENTIVE_SIMD_IS_AVX512 1
#include <immintrin.h>
#else
#define ATTENTIVE_SIMD_IS_AVX512 0
#endif

#include "kernels/cpu/simd.h"
#include "kernels/philox_constants.h"

namespace attentive::kernels::cpu {
namespace ATTENTIVE_SIMD_NAMESPACE {
namespace {

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
  Int v;
  for (int i = 0; i < kWidth; ++i) v[i] = i;
  return v;
}
inline Vec select(Int condition, Vec yes, Vec no) {
  return condition ? yes : no;
}
// The larger one; a NaN among `x` does not count.
inline Vec larger(Vec x, Vec top) {
#if ATTENTIVE_SIMD_IS_AVX512
  return (Vec)_mm512_max_ps((__m512)x, (__m512)top);  // the second operand if either is NaN
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
// it is 0; NaN stays NaN.
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
  const Vec magic = all(12582912.0f);
  const Vec clamped = t < all(-126.0f) ? all(-126.0f) : t;
  const Vec r = (clamped + magic) - magic;
  const Vec power = (Vec)((__builtin_convertvector(r, Int) + 127) << 23);
  return t < all(-126.0f) ? all(0.0f) : polynomial(clamped - r) * power;
#endif
}

// tanh by 2^(2 x log2 e): accurate to a few ulp of 1, which is what the scores need.
inline Vec tanh(Vec x) {
  const Vec a = x < all(0.0f) ? -x : x;
  const Vec e = exp2(a * (-2.0f * kLog2e));
  // For small arguments the quotient cancels; the series does not.
  const Vec x2 = x * x;
  const Vec series = x * (1.0f + x2 * (-1.0f / 3.0f + x2 * (2.0f / 15.0f + x2 * (-17.0f / 315.0f))));
  const Vec quotient = (1.0f - e) / (1.0f + e);
  return a < all(0.15f) ? series : (x < all(0.0f) ? -quotient : quotient);
}

// Raw scores to logits in base 2. `capped` receives tanh(x / softcap) for the backward pass.
inline Vec logits(const ScoreRule& rule, Vec raw, Vec distance, const float* bias, int64_t n, Vec* capped) {
  Vec x = raw * rule.scale;
  if (rule.softcap != 0.0f) {
    const Vec t = tanh(x / rule.softcap);
    if (capped) *capped = t;
    x = rule.softcap * t;
  }
  if (bias) x = x + load_part(bias, n);
  if (rule.slope != 0.0f) x = x - rule.slope * (distance < all(0.0f) ? -distance : distance);
  return x * kLog2e;
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

inline Int visible(const SoftmaxRow& row, int64_t c) {
  return visible(c, row.lo, row.hi, row.bias ? row.bias + c : nullptr, row.keep ? row.keep + c : nullptr,
                 row.hi - c);
}

// Turns raw scores into what the exponential takes: logits, and -inf at hidden columns. A plain row stays in
// units of q·k. Returns the largest.
inline float prepare_plain(const SoftmaxRow& row, int64_t first) {
  Vec top = all(kMinusInfinity), other = top;
  const auto edge = [&](int64_t c) {
    const Vec x = select(visible(row, c), load<Vec>(row.scores + c), all(kMinusInfinity));
    store(row.scores + c, x);
    top = larger(x, top);
  };
  int64_t c = first;
  if (row.keep) {
    for (; c < row.hi; c += kWidth) edge(c);
    return largest(top);
  }
  if (c < row.lo) {
    edge(c);
    c += kWidth;
  }
  for (; c + 2 * kWidth <= row.hi; c += 2 * kWidth) {
    top = larger(load<Vec>(row.scores + c), top);
    other = larger(load<Vec>(row.scores + c + kWidth), other);
  }
  for (; c + kWidth <= row.hi; c += kWidth) top = larger(load<Vec>(row.scores + c), top);
  if (c < row.hi) edge(c);
  return largest(larger(other, top));
}

template <bool kSoftcap, bool kSlope>
inline float prepare_rule(const SoftmaxRow& row, int64_t first) {
  ScoreRule rule = row.rule;
  if (!kSoftcap) rule.softcap = 0.0f;
  if (!kSlope) rule.slope = 0.0f;
  Vec top = all(kMinusInfinity);
  for (int64_t c = first; c < row.hi; c += kWidth) {
    const Vec distance = row.distance - __builtin_convertvector(lanes() + static_cast<int32_t>(c), Vec);
    Vec x = logits(rule, load<Vec>(row.scores + c), distance, row.bias ? row.bias + c : nullptr, row.hi - c,
                   nullptr);
    if (row.keep || row.bias || c < row.lo || c + kWidth > row.hi)
      x = select(visible(row, c), x, all(kMinusInfinity));
    store(row.scores + c, x);
    top = larger(x, top);
  }
  return largest(top);
}

inline float prepare(const SoftmaxRow& row, int64_t first) {
  if (row.rule.plain() && !row.bias) return prepare_plain(row, first);
  if (row.rule.softcap != 0.0f) {
    return row.rule.slope != 0.0f ? prepare_rule<true, true>(row, first)
                                  : prepare_rule<true, false>(row, first);
  }
  return row.rule.slope != 0.0f ? prepare_rule<false, true>(row, first)
                                : prepare_rule<false, false>(row, first);
}

template <bool kHalf>
inline void store_weight(const SoftmaxRow& row, int64_t column, Vec weight) {
  if constexpr (kHalf) {
    store(row.weights16 + column, narrow_fast(weight));
  } else {
    store(row.scores + column, weight);
  }
}

// Weights of the columns [first, hi), rounded up to whole vectors; returns their sum before dropout.
template <bool kHalf, bool kDrop>
inline float weigh(const SoftmaxRow& row, int64_t first, float shift, float unit) {
  Vec total = all(0.0f), other = total;
  const auto weight = [&](int64_t c) { return exp2<kHalf>((load<Vec>(row.scores + c) - shift) * unit); };
  const auto put = [&](int64_t c, Vec w) {
    if constexpr (kDrop) {
      w = where_bits(static_cast<uint32_t>(row.drop[c / 16 * row.drop_stride]) >> (c % 16), w);
    }
    store_weight<kHalf>(row, c, w);
  };
  int64_t c = first;
  for (; c + kWidth < row.hi; c += 2 * kWidth) {
    const Vec a = weight(c), b = weight(c + kWidth);
    total += a;
    other += b;
    put(c, a);
    put(c + kWidth, b);
  }
  if (c < row.hi) {
    const Vec a = weight(c);
    total += a;
    put(c, a);
  }
  return sum(total + other);
}

inline void zero_weights(const SoftmaxRow& row, int64_t from, int64_t to) {
  for (int64_t c = from; c < to; c += kWidth) {
    row.weights16 ? store_weight<true>(row, c, all(0.0f)) : store_weight<false>(row, c, all(0.0f));
  }
}

void softmax_row(SoftmaxRow& row) {
  row.rescale = 1.0f;
  if (row.hi <= row.lo) return zero_weights(row, 0, row.cols);
  const int64_t first = row.lo / kWidth * kWidth;
  float maximum = prepare(row, first);
  if (maximum == kMinusInfinity) {
    // No visible key in this row of the tile; but NaN does not compare, and must not vanish.
    for (int64_t c = row.lo; c < row.hi; ++c)
      maximum = row.scores[c] != row.scores[c] ? row.scores[c] : maximum;
    if (maximum == kMinusInfinity) return zero_weights(row, 0, row.cols);
  }
  // A plain row is kept in units of q·k: the difference to the maximum is taken before the scale, so it is
  // exactly 0 for the largest score, however large that is. (Fused, raw * factor - maximum is not.)
  const float unit = row.rule.unit(row.bias != nullptr);
  const float previous = row.maximum;
  if (!(previous > maximum)) row.maximum = maximum;
  if (row.sum == 0.0f) {
    row.rescale = 0.0f;
  } else if (previous != row.maximum) {
    row.rescale = exp2(all((previous - row.maximum) * unit))[0];
  }
  zero_weights(row, 0, first);
  float total;
  if (row.weights16) {
    total = row.drop ? weigh<true, true>(row, first, row.maximum, unit)
                     : weigh<true, false>(row, first, row.maximum, unit);
  } else {
    total = row.drop ? weigh<false, true>(row, first, row.maximum, unit)
                     : weigh<false, false>(row, first, row.maximum, unit);
  }
  zero_weights(row, (row.hi + kWidth - 1) / kWidth * kWidth, row.cols);
  row.sum = row.sum * row.rescale + total;
}

template <bool kHalf>
inline void store_gradient(const GradientRow& row, int64_t c, Vec weight, Vec gradient) {
  if constexpr (kHalf) {
    store(row.weights16 + c, narrow_fast(weight));
    store(row.gradients16 + c, narrow_fast(gradient));
  } else {
    store(row.scores + c, weight);
    store(row.products + c, gradient);
  }
}

// Kinds: a plain row has neither softcap nor slope nor bias.
template <bool kHalf, bool kDrop, bool kPlain, bool kEdge>
inline void gradient_at(const GradientRow& row, int64_t c) {
  const Vec raw = load<Vec>(row.scores + c);
  Vec capped = all(0.0f);
  Vec x;
  if constexpr (kPlain) {
    x = raw * (row.rule.scale * kLog2e);
  } else {
    const Vec distance = row.distance + __builtin_convertvector(lanes() + static_cast<int32_t>(c), Vec);
    x = logits(row.rule, raw, distance, row.bias ? row.bias + c : nullptr, row.hi - c, &capped);
  }
  // A weight is at most 1; rounding of very large scores must not make it more.
  const Vec t = x - load<Vec>(row.logsumexp + c);
  Vec weight = exp2<kHalf>(t > all(0.0f) ? all(0.0f) : t);
  Vec gradient = load<Vec>(row.products + c);
  Vec dropped = weight;
  if constexpr (kDrop) {
    const Half bits = load<Half>(row.drop + c);
    const Int survives = ((__builtin_convertvector(bits, Int) >> row.drop_bit) & 1) != 0;
    dropped = select(survives, weight * row.survivor_scale, all(0.0f));
    gradient = select(survives, gradient * row.survivor_scale, all(0.0f));
  }
  gradient = weight * (gradient - load<Vec>(row.delta + c));
  if (!kPlain && row.rule.softcap != 0.0f) gradient = gradient * (1.0f - capped * capped);
  gradient = gradient * row.rule.scale;
  if constexpr (kEdge) {
    const Int seen = visible(c, row.lo, row.hi, row.bias ? row.bias + c : nullptr,
                             row.keep ? row.keep + c : nullptr, row.hi - c);
    dropped = select(seen, dropped, all(0.0f));
    gradient = select(seen, gradient, all(0.0f));
  }
  store_gradient<kHalf>(row, c, dropped, gradient);
}

template <bool kHalf, bool kDrop, bool kPlain>
void gradient_columns(const GradientRow& row) {
  const bool masked = row.keep || row.bias;
  int64_t c = 0;
  for (; c < row.cols && c + kWidth <= row.lo; c += kWidth)
    store_gradient<kHalf>(row, c, all(0.0f), all(0.0f));
  for (; c < row.hi && (masked || c < row.lo); c += kWidth) gradient_at<kHalf, kDrop, kPlain, true>(row, c);
  for (; c + kWidth <= row.hi; c += kWidth) gradient_at<kHalf, kDrop, kPlain, false>(row, c);
  if (c < row.hi) {
    gradient_at<kHalf, kDrop, kPlain, true>(row, c);
    c += kWidth;
  }
  for (; c < row.cols; c += kWidth) store_gradient<kHalf>(row, c, all(0.0f), all(0.0f));
}

template <bool kHalf>
inline void gradient_row_as(const GradientRow& row) {
  const bool plain = row.rule.plain() && !row.bias;
  if (row.drop) {
    plain ? gradient_columns<kHalf, true, true>(row) : gradient_columns<kHalf, true, false>(row);
  } else {
    plain ? gradient_columns<kHalf, false, true>(row) : gradient_columns<kHalf, false, false>(row);
  }
}

void gradient_row(const GradientRow& row) {
  row.weights16 ? gradient_row_as<true>(row) : gradient_row_as<false>(row);
}

#if ATTENTIVE_SIMD_IS_AVX512
// A block of 16 by 16 numbers of 32 bits in registers.
inline void transpose_block(const float* src, int64_t lds, float* dst, int64_t ldd) {
  __m512 r[16], t[16];
  for (int i = 0; i < 16; ++i) r[i] = _mm512_loadu_ps(src + i * lds);
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
  }
  const auto low = [](__m512 a, __m512 b) {
    return _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
  };
  const auto high = [](__m512 a, __m512 b) {
    return _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
  };
  for (int i = 0; i < 16; i += 4) {
    r[i] = low(t[i], t[i + 2]);
    r[i + 1] = high(t[i], t[i + 2]);
    r[i + 2] = low(t[i + 1], t[i + 3]);
    r[i + 3] = high(t[i + 1], t[i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0xdd);
  }
  for (int i = 0; i < 8; ++i) {
    _mm512_storeu_ps(dst + i * ldd, _mm512_shuffle_f32x4(t[i], t[i + 8], 0x88));
    _mm512_storeu_ps(dst + (i + 8) * ldd, _mm512_shuffle_f32x4(t[i], t[i + 8], 0xdd));
  }
}
#else
inline void transpose_block(const float* src, int64_t lds, float* dst, int64_t ldd) {
  for (int c = 0; c < 16; ++c) {
    for (int r = 0; r < 16; ++r) dst[c * ldd + r] = src[r * lds + c];
  }
}
#endif

void transpose(const float* src, int64_t lds, float* dst, int64_t ldd, int64_t rows, int64_t cols) {
  const int64_t whole_rows = rows / 16 * 16, whole_cols = cols / 16 * 16;
  for (int64_t r = 0; r < whole_rows; r += 16) {
    for (int64_t c = 0; c < whole_cols; c += 16)
      transpose_block(src + r * lds + c, lds, dst + c * ldd + r, ldd);
  }
  for (int64_t c = 0; c < cols; ++c) {
    for (int64_t r = c < whole_cols ? whole_rows : 0; r < rows; ++r) dst[c * ldd + r] = src[r * lds + c];
  }
}

void to_bf16(const float* src, bf16_t* dst, int64_t n) {
  for (int64_t i = 0; i < n; i += kWidth) store16_part(dst + i, load_part(src + i, n - i), n - i);
}

void from_bf16(const bf16_t* src, float* dst, int64_t n) {
  for (int64_t i = 0; i < n; i += kWidth) store_part(dst + i, load16_part(src + i, n - i), n - i);
}

void transpose_to_bf16(const float* src, int64_t lds, bf16_t* dst, int64_t ldd, int64_t rows, int64_t cols) {
  alignas(64) float block[16 * 16];
  for (int64_t c = 0; c < cols; c += 16) {
    const int64_t wide = cols - c < 16 ? cols - c : 16;
    for (int64_t r = 0; r < rows; r += 16) {
      const int64_t high = rows - r < 16 ? rows - r : 16;
      transpose(src + r * lds + c, lds, block, 16, high, wide);
      for (int64_t i = 0; i < wide; ++i) to_bf16(block + i * 16, dst + (c + i) * ldd + r, high);
    }
  }
}

void pack_pairs(const bf16_t* src, int64_t lds, bf16_t* dst, int64_t ldd, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; r += 2) {
    const bf16_t* a = src + r * lds;
    bf16_t* out = dst + r * ldd;
    if (r + 1 < rows) {
      const bf16_t* b = a + lds;
      for (int64_t c = 0; c < cols; ++c) {
        out[2 * c] = a[c];
        out[2 * c + 1] = b[c];
      }
    } else {
      for (int64_t c = 0; c < cols; ++c) {
        out[2 * c] = a[c];
        out[2 * c + 1] = 0;
      }
    }
  }
}

void pack_pairs_transposed(const bf16_t* src, int64_t lds, bf16_t* dst, int64_t ldd, int64_t rows,
                           int64_t cols) {
  // Whole blocks of 16 rows by 32 columns are transpositions of 32-bit pairs.
  const int64_t whole_rows = lds % 2 == 0 ? rows / 16 * 16 : 0, whole_cols = cols / 32 * 32;
  for (int64_t r = 0; r < whole_rows; r += 16) {
    for (int64_t c = 0; c < whole_cols; c += 32) {
      transpose_block(reinterpret_cast<const float*>(src + r * lds + c), lds / 2,
                      reinterpret_cast<float*>(dst + c * ldd + 2 * r), ldd);
    }
  }
  for (int64_t c = 0; c < cols; c += 2) {
    for (int64_t r = c < whole_cols ? whole_rows : 0; r < rows; ++r) {
      dst[c * ldd + 2 * r] = src[r * lds + c];
      dst[c * ldd + 2 * r + 1] = c + 1 < cols ? src[r * lds + c + 1] : 0;
    }
  }
}

void scale(float* x, float factor, int64_t n) {
  for (int64_t i = 0; i < n; i += kWidth) store_part(x + i, load_part(x + i, n - i) * factor, n - i);
}

void store_scaled(const float* x, float factor, float* out, int64_t n) {
  for (int64_t i = 0; i < n; i += kWidth) store_part(out + i, load_part(x + i, n - i) * factor, n - i);
}

void store_scaled16(const float* x, float factor, bf16_t* out, int64_t n) {
  for (int64_t i = 0; i < n; i += kWidth) store16_part(out + i, load_part(x + i, n - i) * factor, n - i);
}

void add(const float* x, float* to, int64_t n) {
  for (int64_t i = 0; i < n; i += kWidth)
    store_part(to + i, load_part(to + i, n - i) + load_part(x + i, n - i), n - i);
}

float dot(const float* a, const float* b, int64_t n) {
  Vec total = all(0.0f);
  for (int64_t i = 0; i < n; i += kWidth) total += load_part(a + i, n - i) * load_part(b + i, n - i);
  return sum(total);
}

float dot16(const bf16_t* a, const bf16_t* b, int64_t n) {
  Vec total = all(0.0f);
  for (int64_t i = 0; i < n; i += kWidth) total += load16_part(a + i, n - i) * load16_part(b + i, n - i);
  return sum(total);
}

// x - x is 0 for every finite number and NaN for the others.
bool all_finite(const float* x, int64_t ld, int64_t rows, int64_t n) {
  Vec total = all(0.0f);
  for (int64_t r = 0; r < rows; ++r, x += ld) {
    for (int64_t i = 0; i < n; i += kWidth) {
      const Vec v = load_part(x + i, n - i);
      total += v - v;
    }
  }
  return sum(total) == 0.0f;
}

bool all_finite16(const bf16_t* x, int64_t ld, int64_t rows, int64_t n) {
  Vec total = all(0.0f);
  for (int64_t r = 0; r < rows; ++r, x += ld) {
    for (int64_t i = 0; i < n; i += kWidth) {
      const Vec v = load16_part(x + i, n - i);
      total += v - v;
    }
  }
  return sum(total) == 0.0f;
}

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

// kRows queries by kKeys keys at a time: each key row is read once for all of them.
template <int kRows, int kKeys, bool kBf16>
inline void score_block(const float* q, const void* k, int64_t ldk, int64_t dim, float* scores, int64_t ld) {
  Vec total[kRows][kKeys];
  for (int r = 0; r < kRows; ++r) {
    for (int j = 0; j < kKeys; ++j) total[r][j] = all(0.0f);
  }
  for (int64_t d = 0; d < dim; d += kWidth) {
    Vec key[kKeys];
    for (int j = 0; j < kKeys; ++j) {
      if constexpr (kBf16) {
        key[j] = load16_part(static_cast<const bf16_t*>(k) + j * ldk + d, dim - d);
      } else {
        key[j] = load_part(static_cast<const float*>(k) + j * ldk + d, dim - d);
      }
    }
    for (int r = 0; r < kRows; ++r) {
      const Vec query = load_part(q + r * dim + d, dim - d);
      for (int j = 0; j < kKeys; ++j) total[r][j] += query * key[j];
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int j = 0; j < kKeys; ++j) scores[r * ld + j] = sum(total[r][j]);
  }
}

template <int kRows, bool kBf16>
inline void score_rows(const float* q, const void* k, int64_t ldk, int64_t keys, int64_t dim, float* scores,
                       int64_t ld) {
  const auto key = [&](int64_t j) {
    return kBf16 ? static_cast<const void*>(static_cast<const bf16_t*>(k) + j * ldk)
                 : static_cast<const void*>(static_cast<const float*>(k) + j * ldk);
  };
  int64_t j = 0;
  for (; j + 4 <= keys; j += 4) score_block<kRows, 4, kBf16>(q, key(j), ldk, dim, scores + j, ld);
  for (; j < keys; ++j) score_block<kRows, 1, kBf16>(q, key(j), ldk, dim, scores + j, ld);
}

template <bool kBf16>
void few_scores_of(const float* q, int64_t rows, const void* k, int64_t ldk, int64_t keys, int64_t dim,
                   float* scores, int64_t ld) {
  // Blocks of keys that stay in the first cache while the groups of rows pass over them.
  constexpr int64_t kBlock = 32;
  for (int64_t j = 0; j < keys; j += kBlock) {
    const int64_t n = keys - j < kBlock ? keys - j : kBlock;
    const void* block = kBf16 ? static_cast<const void*>(static_cast<const bf16_t*>(k) + j * ldk)
                              : static_cast<const void*>(static_cast<const float*>(k) + j * ldk);
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4)
      score_rows<4, kBf16>(q + r * dim, block, ldk, n, dim, scores + r * ld + j, ld);
    for (; r < rows; ++r) score_rows<1, kBf16>(q + r * dim, block, ldk, n, dim, scores + r * ld + j, ld);
  }
}

void few_scores(const float* q, int64_t rows, const void* k, bool is_bf16, int64_t ldk, int64_t keys,
                int64_t dim, float* scores, int64_t ld) {
  is_bf16 ? few_scores_of<true>(q, rows, k, ldk, keys, dim, scores, ld)
          : few_scores_of<false>(q, rows, k, ldk, keys, dim, scores, ld);
}

template <int kRows, int kVectors, bool kBf16>
inline void output_block(const float* weights, int64_t ld, const void* v, int64_t ldv, int64_t keys,
                         int64_t part, float* out, int64_t dim) {
  Vec total[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int x = 0; x < kVectors; ++x) total[r][x] = load_part(out + r * dim + x * kWidth, part - x * kWidth);
  }
  for (int64_t j = 0; j < keys; ++j) {
    Vec value[kVectors];
    for (int x = 0; x < kVectors; ++x) {
      if constexpr (kBf16) {
        value[x] = load16_part(static_cast<const bf16_t*>(v) + j * ldv + x * kWidth, part - x * kWidth);
      } else {
        value[x] = load_part(static_cast<const float*>(v) + j * ldv + x * kWidth, part - x * kWidth);
      }
    }
    for (int r = 0; r < kRows; ++r) {
      for (int x = 0; x < kVectors; ++x) total[r][x] += weights[r * ld + j] * value[x];
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int x = 0; x < kVectors; ++x) store_part(out + r * dim + x * kWidth, total[r][x], part - x * kWidth);
  }
}

template <int kRows, bool kBf16>
inline void output_rows(const float* weights, int64_t ld, const void* v, int64_t ldv, int64_t keys,
                        int64_t dim, float* out) {
  constexpr int kVectors = 4;
  const auto column = [&](int64_t d) {
    return kBf16 ? static_cast<const void*>(static_cast<const bf16_t*>(v) + d)
                 : static_cast<const void*>(static_cast<const float*>(v) + d);
  };
  int64_t d = 0;
  for (; d + kVectors * kWidth <= dim; d += kVectors * kWidth) {
    output_block<kRows, kVectors, kBf16>(weights, ld, column(d), ldv, keys, kVectors * kWidth, out + d, dim);
  }
  for (; d < dim; d += kWidth) {
    output_block<kRows, 1, kBf16>(weights, ld, column(d), ldv, keys, dim - d < kWidth ? dim - d : kWidth,
                                  out + d, dim);
  }
}

template <bool kBf16>
void few_outputs_of(const float* weights, int64_t ld, int64_t rows, const void* v, int64_t ldv, int64_t keys,
                    int64_t dim, float* out) {
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) output_rows<4, kBf16>(weights + r * ld, ld, v, ldv, keys, dim, out + r * dim);
  for (; r < rows; ++r) output_rows<1, kBf16>(weights + r * ld, ld, v, ldv, keys, dim, out + r * dim);
}

void few_outputs(const float* weights, int64_t ld, int64_t rows, const void* v, bool is_bf16, int64_t ldv,
                 int64_t keys, int64_t dim, float* out) {
  is_bf16 ? few_outputs_of<true>(weights, ld, rows, v, ldv, keys, dim, out)
          : few_outputs_of<false>(weights, ld, rows, v, ldv, keys, dim, out);
}

constexpr Simd make_table(const char* name) {
  return {.name = name,
          .softmax_row = softmax_row,
          .gradient_row = gradient_row,
          .transpose = transpose,
          .transpose_to_bf16 = transpose_to_bf16,
          .to_bf16 = to_bf16,
          .from_bf16 = from_bf16,
          .pack_pairs = pack_pairs,
          .pack_pairs_transposed = pack_pairs_transposed,
          .scale = scale,
          .store_scaled = store_scaled,
          .store_scaled16 = store_scaled16,
          .add = add,
          .dot = dot,
          .dot16 = dot16,
          .all_finite = all_finite,
          .all_finite16 = all_finite16,
          .dropout_bits = dropout_bits,
          .few_scores = few_scores,
          .few_outputs = few_outputs};
}

}  // namespace
}  // namespace ATTENTIVE_SIMD_NAMESPACE
}  // namespace attentive::kernels::cpu
