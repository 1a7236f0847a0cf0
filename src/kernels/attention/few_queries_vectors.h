// Part of simd_impl.h, inside its namespace: few queries over many keys.
#pragma once

// The scores of a block, from its sums. Those of keys beyond `keys` are not written.
template <int kRows>
inline void store_scores(const Vec (&total)[kSums], int64_t keys, float* scores, int64_t ld) {
  constexpr int kKeys = kSums / kRows;
  float out[kSums];
  sums(total, out);
  const auto bytes = static_cast<size_t>(keys < kKeys ? keys : kKeys) * sizeof(float);
  for (int r = 0; r < kRows; ++r) std::memcpy(scores + r * ld, out + r * kKeys, bytes);
}

// kRows queries by kSums / kRows keys at a time: each key row is read once for all of them. `keys` of the
// rows exist. kAsk: whether these rows come from memory.
template <int kRows, bool kBf16, bool kAsk>
inline void score_block(const float* q, const void* k, int64_t ldk, int64_t keys, int64_t dim, float* scores,
                        int64_t ld) {
  constexpr int kKeys = kSums / kRows;
  Vec total[kSums] = {};
  int64_t at[kKeys];  // a missing key repeats the first
  for (int j = 0; j < kKeys; ++j) at[j] = j < keys ? j * ldk : 0;
  const auto step = [&](int64_t d, int64_t n) {
    Vec key[kKeys];
    for (int j = 0; j < kKeys; ++j) key[j] = load_value<kBf16>(k, at[j] + d, n);
    for (int r = 0; r < kRows; ++r) {
      const Vec query = load_part(q + r * dim + d, n);
      for (int j = 0; j < kKeys; ++j) total[r * kKeys + j] += query * key[j];
    }
  };
  int64_t d = 0;
  for (; d + kLine<kBf16> <= dim; d += kLine<kBf16>) {
    if constexpr (kAsk) {
      for (int j = 0; j < kKeys; ++j) prefetch<kBf16>(k, at[j] + d);
    }
    for (int64_t i = 0; i < kLine<kBf16>; i += kWidth) step(d + i, kWidth);
  }
  for (; d < dim; d += kWidth) step(d, dim - d);
  store_scores<kRows>(total, keys, scores, ld);
}

template <int kRows, bool kBf16, bool kAsk>
inline void score_rows(const float* q, const void* k, int64_t ldk, int64_t keys, int64_t dim, float* scores,
                       int64_t ld) {
  for (int64_t j = 0; j < keys; j += kSums / kRows) {
    const void* key = static_cast<const char*>(k) + j * ldk * (kBf16 ? 2 : 4);
    score_block<kRows, kBf16, kAsk>(q, key, ldk, keys - j, dim, scores + j, ld);
  }
}

#if ATTENTIVE_SIMD_IS_AVX512 && defined(__AVX512BF16__)
#define ATTENTIVE_SIMD_HAS_DOT16 1
inline __m512bh load_pairs(const bf16_t* p) {
  return (__m512bh)_mm512_loadu_si512(p);
}

// The same for bf16 keys by products of pairs; dim is a multiple of 32, the queries are bf16.
template <int kRows>
inline void score_block16(const bf16_t* q, const bf16_t* k, int64_t ldk, int64_t keys, int64_t dim,
                          float* scores, int64_t ld) {
  constexpr int kKeys = kSums / kRows;
  __m512 total[kSums];
  for (auto& t : total) t = _mm512_setzero_ps();
  int64_t at[kKeys];
  for (int j = 0; j < kKeys; ++j) at[j] = j < keys ? j * ldk : 0;
  for (int64_t d = 0; d < dim; d += 32) {
    __m512bh query[kRows];
    for (int r = 0; r < kRows; ++r) query[r] = load_pairs(q + r * dim + d);
    for (int j = 0; j < kKeys; ++j) {
      prefetch<true>(k, at[j] + d);
      const __m512bh key = load_pairs(k + at[j] + d);
      for (int r = 0; r < kRows; ++r)
        total[r * kKeys + j] = _mm512_dpbf16_ps(total[r * kKeys + j], query[r], key);
    }
  }
  Vec vectors[kSums];
  for (int i = 0; i < kSums; ++i) vectors[i] = (Vec)total[i];
  store_scores<kRows>(vectors, keys, scores, ld);
}

template <int kRows>
inline void score_rows16(const float* q, const bf16_t* k, int64_t ldk, int64_t keys, int64_t dim,
                         float* scores, int64_t ld) {
  alignas(64) bf16_t query[kRows * 256];
  for (int64_t i = 0; i < kRows * dim; i += kWidth) store(query + i, narrow_fast(load<Vec>(q + i)));
  for (int64_t j = 0; j < keys; j += kSums / kRows)
    score_block16<kRows>(query, k + j * ldk, ldk, keys - j, dim, scores + j, ld);
}

void few_scores16(const float* q, int64_t rows, const bf16_t* k, int64_t ldk, int64_t keys, int64_t dim,
                  float* scores, int64_t ld) {
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) score_rows16<4>(q + r * dim, k, ldk, keys, dim, scores + r * ld, ld);
  for (; r + 2 <= rows; r += 2) score_rows16<2>(q + r * dim, k, ldk, keys, dim, scores + r * ld, ld);
  for (; r < rows; ++r) score_rows16<1>(q + r * dim, k, ldk, keys, dim, scores + r * ld, ld);
}

// out[r * dim + 64 columns] += weights · values, keys in pairs; the weights are rounded to bf16 as they are
// in the products of many queries.
template <int kRows>
inline void output_block16(const uint32_t* pairs, int64_t ld, const bf16_t* v, int64_t ldv, int64_t keys,
                           float* out, int64_t dim) {
  __m512 total[kRows][4];
  for (int r = 0; r < kRows; ++r) {
    for (int x = 0; x < 4; ++x) total[r][x] = _mm512_loadu_ps(out + r * dim + x * 16);
  }
  alignas(64) static constexpr uint16_t kLow[32] = {0,  32, 1,  33, 2,  34, 3,  35, 4,  36, 5,
                                                    37, 6,  38, 7,  39, 8,  40, 9,  41, 10, 42,
                                                    11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
  const __m512i low = _mm512_load_si512(kLow), high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
  for (int64_t j = 0; j < keys; j += 2) {
    const bf16_t* a = v + j * ldv;
    __m512bh value[4];
    for (int x = 0; x < 2; ++x) {
      prefetch<true>(a, x * 32);
      const __m512i first = _mm512_loadu_si512(a + x * 32);
      __m512i second = _mm512_setzero_si512();
      if (j + 1 < keys) {
        prefetch<true>(a, ldv + x * 32);
        second = _mm512_loadu_si512(a + ldv + x * 32);
      }
      value[2 * x] = (__m512bh)_mm512_permutex2var_epi16(first, low, second);
      value[2 * x + 1] = (__m512bh)_mm512_permutex2var_epi16(first, high, second);
    }
    for (int r = 0; r < kRows; ++r) {
      const auto weight = (__m512bh)_mm512_set1_epi32(static_cast<int>(pairs[r * ld + j / 2]));
      for (int x = 0; x < 4; ++x) total[r][x] = _mm512_dpbf16_ps(total[r][x], weight, value[x]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int x = 0; x < 4; ++x) _mm512_storeu_ps(out + r * dim + x * 16, total[r][x]);
  }
}

template <int kRows>
inline void output_rows16(const float* weights, int64_t ld, const bf16_t* v, int64_t ldv, int64_t keys,
                          int64_t dim, float* out) {
  constexpr int64_t kKeys = 256;
  alignas(64) bf16_t narrow[kRows * kKeys];
  for (int r = 0; r < kRows; ++r) {
    for (int64_t j = 0; j < keys; j += kWidth)
      store(narrow + r * kKeys + j, narrow_fast(load_part(weights + r * ld + j, keys - j)));
  }
  uint32_t pairs[kRows * kKeys / 2];
  std::memcpy(pairs, narrow, sizeof(pairs));
  for (int64_t d = 0; d < dim; d += 64)
    output_block16<kRows>(pairs, kKeys / 2, v + d, ldv, keys, out + d, dim);
}

void few_outputs16(const float* weights, int64_t ld, int64_t rows, const bf16_t* v, int64_t ldv, int64_t keys,
                   int64_t dim, float* out) {
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) output_rows16<4>(weights + r * ld, ld, v, ldv, keys, dim, out + r * dim);
  for (; r + 2 <= rows; r += 2) output_rows16<2>(weights + r * ld, ld, v, ldv, keys, dim, out + r * dim);
  for (; r < rows; ++r) output_rows16<1>(weights + r * ld, ld, v, ldv, keys, dim, out + r * dim);
}
#else
#define ATTENTIVE_SIMD_HAS_DOT16 0
#endif

// Blocks of keys that stay in the first cache while the groups of rows pass over them.
constexpr int64_t kBlockBytes = 16384;

template <bool kBf16>
void few_scores_of(const float* q, int64_t rows, const void* k, int64_t ldk, int64_t keys, int64_t dim,
                   float* scores, int64_t ld) {
  const int64_t fit = kBlockBytes / ((kBf16 ? 2 : 4) * dim) / kSums * kSums,
                block = fit < kSums ? kSums : fit;
  for (int64_t j = 0; j < keys; j += block) {
    const int64_t n = keys - j < block ? keys - j : block;
    const void* const key = static_cast<const char*>(k) + j * ldk * (kBf16 ? 2 : 4);
    const auto group = [&](auto score, int64_t r) {
      score(q + r * dim, key, ldk, n, dim, scores + r * ld + j, ld);
    };
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4)
      r == 0 ? group(score_rows<4, kBf16, true>, r) : group(score_rows<4, kBf16, false>, r);
    for (; r + 2 <= rows; r += 2) group(score_rows<2, kBf16, true>, r);
    for (; r < rows; ++r) group(score_rows<1, kBf16, true>, r);
  }
}

void few_scores(const float* q, int64_t rows, const void* k, bool is_bf16, int64_t ldk, int64_t keys,
                int64_t dim, float* scores, int64_t ld) {
#if ATTENTIVE_SIMD_HAS_DOT16
  if (is_bf16 && dim % 32 == 0 && dim <= 256) {
    return few_scores16(q, rows, static_cast<const bf16_t*>(k), ldk, keys, dim, scores, ld);
  }
#endif
  is_bf16 ? few_scores_of<true>(q, rows, k, ldk, keys, dim, scores, ld)
          : few_scores_of<false>(q, rows, k, ldk, keys, dim, scores, ld);
}

// Vectors of an output row that are summed at a time.
constexpr int kOutputVectors = kSums / 4;

template <int kRows, int kVectors, bool kBf16>
inline void output_block(const float* weights, int64_t ld, const void* v, int64_t ldv, int64_t keys,
                         int64_t part, float* out, int64_t dim) {
  Vec total[kRows][kVectors] = {};
  for (int64_t j = 0; j < keys; ++j) {
    Vec value[kVectors];
    for (int x = 0; x < kVectors; ++x) {
      prefetch<kBf16>(v, j * ldv + x * kWidth);
      value[x] = load_value<kBf16>(v, j * ldv + x * kWidth, part - x * kWidth);
    }
    for (int r = 0; r < kRows; ++r) {
      for (int x = 0; x < kVectors; ++x) total[r][x] += weights[r * ld + j] * value[x];
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int x = 0; x < kVectors; ++x) {
      float* const sums = out + r * dim + x * kWidth;
      store_part(sums, load_part(sums, part - x * kWidth) + total[r][x], part - x * kWidth);
    }
  }
}

template <int kRows, bool kBf16>
inline void output_rows(const float* weights, int64_t ld, const void* v, int64_t ldv, int64_t keys,
                        int64_t dim, float* out) {
  constexpr int kVectors = kOutputVectors;
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
  // Each block of keys is summed by itself: rounding errors grow with its size and the number of blocks. Where
  // few columns are summed at a time, a short block keeps what they fetch early a whole block ahead.
  constexpr int64_t kBlock = ATTENTIVE_SIMD_IS_AVX512 ? 128 : 16;
  for (int64_t j = 0; j < keys; j += kBlock) {
    const int64_t n = keys - j < kBlock ? keys - j : kBlock;
    const void* block = static_cast<const char*>(v) + j * ldv * (kBf16 ? 2 : 4);
    const float* of_block = weights + j;
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4)
      output_rows<4, kBf16>(of_block + r * ld, ld, block, ldv, n, dim, out + r * dim);
    for (; r < rows; ++r) output_rows<1, kBf16>(of_block + r * ld, ld, block, ldv, n, dim, out + r * dim);
  }
}

void few_outputs(const float* weights, int64_t ld, int64_t rows, const void* v, bool is_bf16, int64_t ldv,
                 int64_t keys, int64_t dim, float* out) {
#if ATTENTIVE_SIMD_HAS_DOT16
  if (is_bf16 && dim % 64 == 0 && keys <= 256) {
    return few_outputs16(weights, ld, rows, static_cast<const bf16_t*>(v), ldv, keys, dim, out);
  }
#endif
  is_bf16 ? few_outputs_of<true>(weights, ld, rows, v, ldv, keys, dim, out)
          : few_outputs_of<false>(weights, ld, rows, v, ldv, keys, dim, out);
}
