#pragma once

// Packs matrices into the operands of products.

#include <type_traits>

#include "kernels/simd/half_types.h"
#include "kernels/simd/matrix.h"
#include "kernels/simd/rows.h"

ATTENTIVE_SIMD_BEGIN

// Transposes a square of kWidth by kWidth numbers, or of other items of 32 bits.
inline void transpose_square(Vec (&r)[kWidth]) {
#if ATTENTIVE_SIMD_IS_AVX512
  __m512 s[16], t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_ps((__m512)r[i], (__m512)r[i + 1]);
    t[i + 1] = _mm512_unpackhi_ps((__m512)r[i], (__m512)r[i + 1]);
  }
  const auto low = [](__m512 a, __m512 b) {
    return _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
  };
  const auto high = [](__m512 a, __m512 b) {
    return _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
  };
  for (int i = 0; i < 16; i += 4) {
    s[i] = low(t[i], t[i + 2]);
    s[i + 1] = high(t[i], t[i + 2]);
    s[i + 2] = low(t[i + 1], t[i + 3]);
    s[i + 3] = high(t[i + 1], t[i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_f32x4(s[i], s[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_f32x4(s[i], s[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_f32x4(s[i + 8], s[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_f32x4(s[i + 8], s[i + 12], 0xdd);
  }
  for (int i = 0; i < 8; ++i) {
    r[i] = (Vec)_mm512_shuffle_f32x4(t[i], t[i + 8], 0x88);
    r[i + 8] = (Vec)_mm512_shuffle_f32x4(t[i], t[i + 8], 0xdd);
  }
#elif ATTENTIVE_SIMD_IS_AVX2
  __m256 s[8], t[8];
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps((__m256)r[i], (__m256)r[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps((__m256)r[i], (__m256)r[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    s[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
    s[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
    s[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    s[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
  }
  for (int i = 0; i < 4; ++i) {
    r[i] = (Vec)_mm256_permute2f128_ps(s[i], s[i + 4], 0x20);
    r[i + 4] = (Vec)_mm256_permute2f128_ps(s[i], s[i + 4], 0x31);
  }
#elif ATTENTIVE_SIMD_IS_NEON
  const auto row = [&](int i) { return (float32x4_t)r[i]; };
  const auto t0 = vreinterpretq_f64_f32(vtrn1q_f32(row(0), row(1))),
             t1 = vreinterpretq_f64_f32(vtrn2q_f32(row(0), row(1)));
  const auto t2 = vreinterpretq_f64_f32(vtrn1q_f32(row(2), row(3))),
             t3 = vreinterpretq_f64_f32(vtrn2q_f32(row(2), row(3)));
  r[0] = (Vec)vtrn1q_f64(t0, t2);
  r[1] = (Vec)vtrn1q_f64(t1, t3);
  r[2] = (Vec)vtrn2q_f64(t0, t2);
  r[3] = (Vec)vtrn2q_f64(t1, t3);
#else
  uint32_t items[kWidth][kWidth];
  std::memcpy(items, r, sizeof(items));
  for (int i = 0; i < kWidth; ++i) {
    for (int j = 0; j < i; ++j) {
      const uint32_t item = items[i][j];
      items[i][j] = items[j][i];
      items[j][i] = item;
    }
  }
  std::memcpy(r, items, sizeof(items));
#endif
}

/// Transposes 16 by 16 items of 32 bits. `vector_at(r, c)` returns those of row r from column c on, and
/// `store_at(r, c, vector)` takes those of the transposed rows.
template <class VectorAt, class StoreAt>
inline void transpose_block(const VectorAt& vector_at, const StoreAt& store_at) {
  for (int r = 0; r < 16; r += kWidth) {
    for (int c = 0; c < 16; c += kWidth) {
      Vec square[kWidth];
      for (int i = 0; i < kWidth; ++i) square[i] = vector_at(r + i, c);
      transpose_square(square);
      for (int i = 0; i < kWidth; ++i) store_at(c + i, r, square[i]);
    }
  }
}

inline int64_t up_to_16(int64_t n) {
  return n < 16 ? n : 16;
}

/// Transposes a part of 16 by 16 numbers.
template <class From, class To>
void transpose_part(const Matrix<const From>& from, const Matrix<To>& to) {
  for (int64_t r = 0; r < from.rows; ++r) {
    if constexpr (std::is_same_v<From, To>) {
      for (int64_t c = 0; c < from.cols; ++c) to.row(c)[r] = from.row(r)[c];
    } else {
      float wide[16];
      To converted[16];
      convert(from.row(r), wide, from.cols);
      convert(wide, converted, from.cols);
      for (int64_t c = 0; c < from.cols; ++c) to.row(c)[r] = converted[c];
    }
  }
}

/// Transposes squares of 16 by 16 numbers, and the parts that remain.
template <class From, class To>
void transpose_squares(const Matrix<const From>& from, const Matrix<To>& to) {
  for (int64_t r = 0; r < from.rows; r += 16) {
    const int64_t high = up_to_16(from.rows - r);
    for (int64_t c = 0; c < from.cols; c += 16) {
      const int64_t width = up_to_16(from.cols - c);
      if (high < 16 || width < 16) {
        transpose_part(from.block(r, high, c, width), to.block(c, width, r, high));
        continue;
      }
      const From* const first = from.row(r) + c;
      To* const out = to.row(c) + r;
      transpose_block([=](int i, int j) { return load_part(first + i * from.stride + j, kWidth); },
                      [=](int i, int j, Vec v) { store_part(out + i * to.stride + j, v, kWidth); });
    }
  }
}

/// Transposes 32 rows by 16 columns into a half type, a line of the cache at a time: as pairs of rows, which
/// are items of 32 bits.
template <class To>
void transpose_lines(const Matrix<const float>& from, const Matrix<To>& to) {
  transpose_block(
      [=](int r, int c) {
        const auto bits = [=](int row) {
          return __builtin_convertvector(to_half<To>(load<Vec>(from.row(row) + c)), Uint);
        };
        return (Vec)(bits(2 * r) | bits(2 * r + 1) << 16);
      },
      [=](int r, int c, Vec pairs) { std::memcpy(to.row(r) + 2 * c, &pairs, sizeof(pairs)); });
}

/// Transposes 16 rows by 32 columns of a half type, a line of the cache at a time: as pairs of columns.
template <class From>
void transpose_lines(const Matrix<const From>& from, const Matrix<float>& to) {
  transpose_block(
      [=](int r, int c) {
        Vec pairs;
        std::memcpy(&pairs, from.row(r) + 2 * c, sizeof(pairs));
        return pairs;
      },
      [=](int r, int c, Vec pairs) {
        const Uint bits = (Uint)pairs;
        if constexpr (kIsBf16<From>) {
          store(to.row(2 * r) + c, (Vec)(bits << 16));
          store(to.row(2 * r + 1) + c, (Vec)(bits & 0xffff0000u));
        } else {
          store(to.row(2 * r) + c, from_half<From>(__builtin_convertvector(bits & 0xffffu, Half)));
          store(to.row(2 * r + 1) + c, from_half<From>(__builtin_convertvector(bits >> 16, Half)));
        }
      });
}

/// to(c, r) = from(r, c), converted.
template <class From, class To>
void transpose(const Matrix<const From>& from, const Matrix<To>& to) {
  if constexpr (std::is_same_v<From, To>) {
    transpose_squares(from, to);
  } else {
    constexpr bool kNarrows = std::is_same_v<From, float>;
    constexpr int64_t kHigh = kNarrows ? 32 : 16, kWide = kNarrows ? 16 : 32;
    for (int64_t r = 0; r < from.rows; r += kHigh) {
      const int64_t high = from.rows - r < kHigh ? from.rows - r : kHigh;
      for (int64_t c = 0; c < from.cols; c += kWide) {
        const int64_t width = from.cols - c < kWide ? from.cols - c : kWide;
        const auto source = from.block(r, high, c, width);
        const auto target = to.block(c, width, r, high);
        if (high == kHigh && width == kWide) {
          transpose_lines(source, target);
        } else {
          transpose_squares(source, target);
        }
      }
    }
  }
}

template <class From>
void pack_transposed(const Matrix<const From>& from, const Rhs<float>& to) {
  transpose(from, Matrix<float>{to.data, from.cols, from.rows, to.stride});
}

/// Packs pairs of columns. Whole blocks of 16 rows by 32 columns are transposed as 32-bit pairs.
void pack_transposed(const Matrix<const bf16_t>& from, const Rhs<bf16_t>& to) {
  const int64_t whole_rows = from.rows / 16 * 16, whole_cols = from.cols / 32 * 32;
  for (int64_t r = 0; r < whole_rows; r += 16) {
    for (int64_t c = 0; c < whole_cols; c += 32) {
      const bf16_t* const first = from.row(r) + c;
      bf16_t* const out = to.data + c * to.stride + 2 * r;
      transpose_block(
          [=](int i, int j) {
            Vec pairs;
            std::memcpy(&pairs, first + i * from.stride + 2 * j, sizeof(pairs));
            return pairs;
          },
          [=](int i, int j, Vec pairs) {
            std::memcpy(out + 2 * (i * to.stride + j), &pairs, sizeof(pairs));
          });
    }
  }
  for (int64_t c = 0; c < from.cols; c += 2) {
    bf16_t* const pairs = to.data + c * to.stride;
    for (int64_t r = c < whole_cols ? whole_rows : 0; r < from.rows; ++r) {
      pairs[2 * r] = from.row(r)[c];
      pairs[2 * r + 1] = c + 1 < from.cols ? from.row(r)[c + 1] : 0;
    }
  }
}

/// Returns whether all numbers are finite: x - x is 0 for finite numbers and NaN for others.
template <class T>
bool pack_rows(const Matrix<const T>& from, const Rhs<float>& to) {
  Vec total = all(0.0f);
  for (int64_t r = 0; r < from.rows; ++r) {
    const T* const row = from.row(r);
    float* const out = to.data + r * to.stride;
    for (int64_t c = 0; c < from.cols; c += kWidth) {
      const Vec v = load_part(row + c, from.cols - c);
      total += v - v;
      store_part(out + c, v, from.cols - c);
    }
  }
  return sum(total) == 0.0f;
}

constexpr uint16_t kNotFinite = 0x7f80;  ///< the exponent of NaN and Inf in bf16

// Interleaves two rows and returns the number of columns done, a multiple of the vector width. Clears
// `finite` if one of their numbers is not finite.
#if ATTENTIVE_SIMD_IS_AVX512
inline int64_t interleave(const bf16_t* a, const bf16_t* b, bf16_t* out, int64_t cols, bool* finite) {
  const __m512i magnitude = _mm512_set1_epi16(0x7fff);
  const __m512i front = _mm512_set_epi64(11, 10, 3, 2, 9, 8, 1, 0);
  const __m512i back = _mm512_add_epi64(front, _mm512_set1_epi64(4));
  __m512i largest = _mm512_setzero_si512();
  int64_t c = 0;
  for (; c + 32 <= cols; c += 32) {
    const __m512i x = _mm512_loadu_si512(a + c), y = _mm512_loadu_si512(b + c);
    largest = _mm512_max_epu16(
        largest, _mm512_max_epu16(_mm512_and_si512(x, magnitude), _mm512_and_si512(y, magnitude)));
    const __m512i low = _mm512_unpacklo_epi16(x, y), high = _mm512_unpackhi_epi16(x, y);
    _mm512_storeu_si512(out + 2 * c, _mm512_permutex2var_epi64(low, front, high));
    _mm512_storeu_si512(out + 2 * c + 32, _mm512_permutex2var_epi64(low, back, high));
  }
  *finite &= _mm512_cmpge_epu16_mask(largest, _mm512_set1_epi16(kNotFinite)) == 0;
  return c;
}
#elif ATTENTIVE_SIMD_IS_NEON
inline int64_t interleave(const bf16_t* a, const bf16_t* b, bf16_t* out, int64_t cols, bool* finite) {
  const uint16x8_t magnitude = vdupq_n_u16(0x7fff);
  uint16x8_t largest = vdupq_n_u16(0);
  int64_t c = 0;
  for (; c + 8 <= cols; c += 8) {
    const uint16x8_t x = vld1q_u16(a + c), y = vld1q_u16(b + c);
    largest = vmaxq_u16(largest, vmaxq_u16(vandq_u16(x, magnitude), vandq_u16(y, magnitude)));
    vst1q_u16(out + 2 * c, vzip1q_u16(x, y));
    vst1q_u16(out + 2 * c + 8, vzip2q_u16(x, y));
  }
  *finite &= vmaxvq_u16(largest) < kNotFinite;
  return c;
}
#else
inline int64_t interleave(const bf16_t*, const bf16_t*, bf16_t*, int64_t, bool*) {
  return 0;
}
#endif

bool pack_rows(const Matrix<const bf16_t>& from, const Rhs<bf16_t>& to) {
  bool finite = true;
  for (int64_t r = 0; r < from.rows; r += 2) {
    const bf16_t* const a = from.row(r);
    const bf16_t* const b = r + 1 < from.rows ? from.row(r + 1) : nullptr;
    bf16_t* const out = to.data + r * to.stride;
    for (int64_t c = b ? interleave(a, b, out, from.cols, &finite) : 0; c < from.cols; ++c) {
      const bf16_t low = a[c], high = b ? b[c] : bf16_t{0};
      finite &= (low & kNotFinite) != kNotFinite && (high & kNotFinite) != kNotFinite;
      out[2 * c] = low;
      out[2 * c + 1] = high;
    }
  }
  return finite;
}

ATTENTIVE_SIMD_END
