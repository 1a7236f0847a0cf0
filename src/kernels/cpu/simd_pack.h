// Part of simd_impl.h, inside its namespace: rearranging, conversions and small vector algebra.
#pragma once

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

bool pack_pairs(const bf16_t* src, int64_t lds, bf16_t* dst, int64_t ldd, int64_t rows, int64_t cols) {
  constexpr uint32_t kLow = 0x7f80, kHigh = kLow << 16;  // exponents of NaN and Inf
  Int bad = {};
  uint32_t bad_part = 0;
  for (int64_t r = 0; r < rows; r += 2) {
    const bf16_t* a = src + r * lds;
    const bf16_t* b = r + 1 < rows ? a + lds : nullptr;
    bf16_t* out = dst + r * ldd;
    int64_t c = 0;
    for (; c + kWidth <= cols; c += kWidth) {
      Uint pair = __builtin_convertvector(load<Half>(a + c), Uint);
      if (b) pair |= __builtin_convertvector(load<Half>(b + c), Uint) << 16;
      bad |= ((pair & kLow) == kLow) | ((pair & kHigh) == kHigh);
      std::memcpy(out + 2 * c, &pair, sizeof(pair));
    }
    for (; c < cols; ++c) {
      const uint32_t low = a[c], high = b ? b[c] : 0u;
      bad_part |= static_cast<uint32_t>((low & kLow) == kLow || (high & kLow) == kLow);
      out[2 * c] = static_cast<bf16_t>(low);
      out[2 * c + 1] = static_cast<bf16_t>(high);
    }
  }
  for (int i = 0; i < kWidth; ++i) bad_part |= static_cast<uint32_t>(bad[i]);
  return bad_part == 0;
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
bool copy_rows(const float* src, int64_t lds, float* dst, int64_t ldd, int64_t rows, int64_t cols) {
  Vec total = all(0.0f);
  for (int64_t r = 0; r < rows; ++r, src += lds, dst += ldd) {
    for (int64_t c = 0; c < cols; c += kWidth) {
      const Vec v = load_part(src + c, cols - c);
      total += v - v;
      store_part(dst + c, v, cols - c);
    }
  }
  return sum(total) == 0.0f;
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
