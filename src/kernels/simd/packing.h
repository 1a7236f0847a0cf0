// Part of simd_impl.h, inside its namespace: rearranging, conversions and small vector algebra.
#pragma once

#if ATTENTIVE_SIMD_IS_AVX512
// A block of 16 by 16 items of 32 bits, be it floats or pairs of bf16 at any address; rows are `row` and
// `out_row` bytes apart.
inline void transpose_block(const void* src, int64_t row, void* dst, int64_t out_row) {
  const char* const from = static_cast<const char*>(src);
  char* const to = static_cast<char*>(dst);
  __m512 r[16], t[16];
  for (int i = 0; i < 16; ++i) r[i] = _mm512_loadu_ps(from + i * row);
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
    _mm512_storeu_ps(to + i * out_row, _mm512_shuffle_f32x4(t[i], t[i + 8], 0x88));
    _mm512_storeu_ps(to + (i + 8) * out_row, _mm512_shuffle_f32x4(t[i], t[i + 8], 0xdd));
  }
}
#elif ATTENTIVE_SIMD_IS_AVX2
inline void transpose_8_by_8(const char* from, int64_t row, char* to, int64_t out_row) {
  __m256 r[8], t[8];
  for (int i = 0; i < 8; ++i) r[i] = _mm256_loadu_ps(reinterpret_cast<const float*>(from + i * row));
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
    r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
    r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
  }
  for (int i = 0; i < 4; ++i) {
    _mm256_storeu_ps(reinterpret_cast<float*>(to + i * out_row),
                     _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
    _mm256_storeu_ps(reinterpret_cast<float*>(to + (i + 4) * out_row),
                     _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
  }
}

inline void transpose_block(const void* src, int64_t row, void* dst, int64_t out_row) {
  const char* const from = static_cast<const char*>(src);
  char* const to = static_cast<char*>(dst);
  for (int r = 0; r < 16; r += 8) {
    for (int c = 0; c < 16; c += 8)
      transpose_8_by_8(from + r * row + 4 * c, row, to + c * out_row + 4 * r, out_row);
  }
}
#else
inline void transpose_block(const void* src, int64_t row, void* dst, int64_t out_row) {
  const char* const from = static_cast<const char*>(src);
  char* const to = static_cast<char*>(dst);
  for (int c = 0; c < 16; ++c) {
    uint32_t column[16];
    for (int r = 0; r < 16; ++r) std::memcpy(&column[r], from + r * row + 4 * c, 4);
    std::memcpy(to + c * out_row, column, sizeof(column));
  }
}
#endif

void transpose(const float* src, int64_t lds, float* dst, int64_t ldd, int64_t rows, int64_t cols) {
  const int64_t whole_rows = rows / 16 * 16, whole_cols = cols / 16 * 16;
  for (int64_t r = 0; r < whole_rows; r += 16) {
    for (int64_t c = 0; c < whole_cols; c += 16)
      transpose_block(src + r * lds + c, 4 * lds, dst + c * ldd + r, 4 * ldd);
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

void transpose_from_bf16(const bf16_t* src, int64_t lds, float* dst, int64_t ldd, int64_t rows,
                         int64_t cols) {
  alignas(64) float block[16 * 16];
  for (int64_t r = 0; r < rows; r += 16) {
    const int64_t high = rows - r < 16 ? rows - r : 16;
    for (int64_t c = 0; c < cols; c += 16) {
      const int64_t wide = cols - c < 16 ? cols - c : 16;
      for (int64_t i = 0; i < high; ++i) from_bf16(src + (r + i) * lds + c, block + i * 16, wide);
      transpose(block, 16, dst + c * ldd + r, ldd, high, wide);
    }
  }
}

constexpr uint16_t kNotFinite = 0x7f80;  // the exponent of NaN and Inf in bf16

// Two rows as pairs, as far as whole vectors go; returns how many columns that are.
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
#else
inline int64_t interleave(const bf16_t*, const bf16_t*, bf16_t*, int64_t, bool*) {
  return 0;
}
#endif

bool pack_pairs(const bf16_t* src, int64_t lds, bf16_t* dst, int64_t ldd, int64_t rows, int64_t cols) {
  bool finite = true;
  for (int64_t r = 0; r < rows; r += 2) {
    const bf16_t* a = src + r * lds;
    const bf16_t* b = r + 1 < rows ? a + lds : nullptr;
    bf16_t* out = dst + r * ldd;
    for (int64_t c = b ? interleave(a, b, out, cols, &finite) : 0; c < cols; ++c) {
      const bf16_t low = a[c], high = b ? b[c] : bf16_t{0};
      finite &= (low & kNotFinite) != kNotFinite && (high & kNotFinite) != kNotFinite;
      out[2 * c] = low;
      out[2 * c + 1] = high;
    }
  }
  return finite;
}

void pack_pairs_transposed(const bf16_t* src, int64_t lds, bf16_t* dst, int64_t ldd, int64_t rows,
                           int64_t cols) {
  // Whole blocks of 16 rows by 32 columns are transpositions of 32-bit pairs.
  const int64_t whole_rows = rows / 16 * 16, whole_cols = cols / 32 * 32;
  for (int64_t r = 0; r < whole_rows; r += 16) {
    for (int64_t c = 0; c < whole_cols; c += 32)
      transpose_block(src + r * lds + c, 2 * lds, dst + c * ldd + 2 * r, 4 * ldd);
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

inline Vec load_row(const float* p, int64_t n) {
  return load_part(p, n);
}
inline Vec load_row(const bf16_t* p, int64_t n) {
  return load16_part(p, n);
}

// x - x is 0 for every finite number and NaN for the others.
template <class T>
inline bool copy_rows_of(const T* src, int64_t lds, float* dst, int64_t ldd, int64_t rows, int64_t cols) {
  Vec total = all(0.0f);
  for (int64_t r = 0; r < rows; ++r, src += lds, dst += ldd) {
    for (int64_t c = 0; c < cols; c += kWidth) {
      const Vec v = load_row(src + c, cols - c);
      total += v - v;
      store_part(dst + c, v, cols - c);
    }
  }
  return sum(total) == 0.0f;
}

bool copy_rows(const float* src, int64_t lds, float* dst, int64_t ldd, int64_t rows, int64_t cols) {
  return copy_rows_of(src, lds, dst, ldd, rows, cols);
}

bool copy_rows_from_bf16(const bf16_t* src, int64_t lds, float* dst, int64_t ldd, int64_t rows,
                         int64_t cols) {
  return copy_rows_of(src, lds, dst, ldd, rows, cols);
}

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
