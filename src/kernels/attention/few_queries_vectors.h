#pragma once

// Products of few queries with many keys and values, which are not in the cache.

#include "kernels/gemm/register_blocks.h"
#include "kernels/simd/half_types.h"
#include "kernels/simd/matrix.h"
#include "kernels/simd/sums.h"
#include "kernels/simd/vector_code.h"

ATTENTIVE_SIMD_BEGIN

/// Reduces the sums of a block to its scores and writes those of the first `keys` keys.
template <int kRows>
inline void store_scores(const Vec (&total)[kSums], int64_t keys, const Matrix<float>& scores) {
  constexpr int kKeys = kSums / kRows;
  float out[kSums];
  sums(total, out);
  const auto bytes = static_cast<size_t>(keys < kKeys ? keys : kKeys) * sizeof(float);
  for (int r = 0; r < kRows; ++r) std::memcpy(scores.row(r), out + r * kKeys, bytes);
}

/// Loads the operand of one instruction: up to n numbers, widened to float32, or one whole vector of bf16
/// pairs.
template <class Step, class T>
inline Vec load_step(const T* p, int64_t n) {
  if constexpr (Step::kNumbersOfGroup == 1) return load_part(p, n);
  Vec v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}

/// Scores of kRows queries for kSums / kRows keys (or the fewer keys that are left), with one read of each
/// key row. kPrefetch concerns the next rows. Step is defined in register_blocks.h.
template <class Step, int kRows, Prefetch kPrefetch, class T>
inline void score_block(const Matrix<const typename Step::Operand>& q, const Matrix<const T>& k,
                        const Matrix<float>& scores) {
  constexpr int kKeys = kSums / kRows;
  constexpr int64_t kNumbersOfStep = Step::kNumbersOfGroup * kWidth;
  const int64_t dim = q.cols, q_stride = q.stride;
  const auto* const query = q.data;
  Vec total[kSums] = {};
  const T* key[kKeys];  // a missing key repeats the first
  for (int j = 0; j < kKeys; ++j) key[j] = j < k.rows ? k.row(j) : k.data;
  const auto step = [&](int64_t d, int64_t n) {
    Vec of_key[kKeys];
    for (int j = 0; j < kKeys; ++j) of_key[j] = load_step<Step>(key[j] + d, n);
    for (int r = 0; r < kRows; ++r) {
      const Vec of_query = load_step<Step>(query + r * q_stride + d, n);
      for (int j = 0; j < kKeys; ++j)
        total[r * kKeys + j] = Step::add(of_query, of_key[j], total[r * kKeys + j]);
    }
  };
  int64_t d = 0;
  for (; d + kLine<T> <= dim; d += kLine<T>) {
    for (int j = 0; j < kKeys; ++j) prefetch_beyond<kPrefetch>(key[j] + d);
    for (int64_t i = 0; i < kLine<T>; i += kNumbersOfStep) step(d + i, kNumbersOfStep);
  }
  for (; d < dim; d += kNumbersOfStep) step(d, dim - d);
  store_scores<kRows>(total, k.rows, scores);
}

template <class Step, int kRows, Prefetch kPrefetch, class T>
inline void score_rows(const Matrix<const typename Step::Operand>& q, const Matrix<const T>& k,
                       const Matrix<float>& scores) {
  for (int64_t j = 0; j < k.rows; j += kSums / kRows)
    score_block<Step, kRows, kPrefetch>(q, k.part(j, k.rows - j), scores.block(0, kRows, j, k.rows - j));
}

/// Calls work(Sequence<n>, r) for groups of n rows from row r on: n is 4 as often as possible, then 2, then
/// 1.
template <class Work>
inline void for_groups_of_rows(int64_t rows, const Work& work) {
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) work(Sequence<4>{}, r);
  for (; r + 2 <= rows; r += 2) work(Sequence<2>{}, r);
  for (; r < rows; ++r) work(Sequence<1>{}, r);
}

#if ATTENTIVE_SIMD_HAS_PAIRS
constexpr int64_t kMostPairedColumns = 1024;

/// Scores for bf16 keys by products of pairs; the queries are rounded to bf16. The number of columns is a
/// multiple of 32, and at most kMostPairedColumns.
template <Prefetch kPrefetch>
void few_scores_of_pairs(const Matrix<const float>& q, const Matrix<const bf16_t>& k,
                         const Matrix<float>& scores) {
  for_groups_of_rows(q.rows, [&]<int kRows>(Sequence<kRows>, int64_t first) {
    alignas(64) bf16_t narrow[kRows * kMostPairedColumns];
    const Matrix<bf16_t> query{narrow, kRows, q.cols, q.cols};
    for (int r = 0; r < kRows; ++r) {
      for (int64_t d = 0; d < q.cols; d += kWidth)
        store(query.row(r) + d, narrow_fast(load<Vec>(q.row(first + r) + d)));
    }
    score_rows<StepBf16, kRows, kPrefetch, bf16_t>(query, k, scores.part(first, kRows));
  });
}

/// Adds weights * values to 64 columns of `out`, two keys at a time. `pairs` holds the weights of two keys
/// per element, `pairs_stride` elements per row, rounded to bf16 as in the products of many queries.
template <int kRows, Prefetch kPrefetch>
inline void output_block_of_pairs(const uint32_t* pairs, int64_t pairs_stride, const Matrix<const bf16_t>& v,
                                  const Matrix<float>& out) {
  const int64_t keys = v.rows, v_stride = v.stride, out_stride = out.stride;
  const bf16_t* const values = v.data;
  float* const sums = out.data;
  __m512 total[kRows][4];
  for (int r = 0; r < kRows; ++r) {
    for (int x = 0; x < 4; ++x) total[r][x] = _mm512_loadu_ps(sums + r * out_stride + x * 16);
  }
  alignas(64) static constexpr uint16_t kLow[32] = {0,  32, 1,  33, 2,  34, 3,  35, 4,  36, 5,
                                                    37, 6,  38, 7,  39, 8,  40, 9,  41, 10, 42,
                                                    11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
  const __m512i low = _mm512_load_si512(kLow), high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
  for (int64_t j = 0; j < keys; j += 2) {
    const bf16_t* const a = values + j * v_stride;
    __m512bh value[4];
    for (int x = 0; x < 2; ++x) {
      prefetch_beyond<kPrefetch>(a + x * 32);
      const __m512i first = _mm512_loadu_si512(a + x * 32);
      __m512i second = _mm512_setzero_si512();
      if (j + 1 < keys) {
        prefetch_beyond<kPrefetch>(a + v_stride + x * 32);
        second = _mm512_loadu_si512(a + v_stride + x * 32);
      }
      value[2 * x] = (__m512bh)_mm512_permutex2var_epi16(first, low, second);
      value[2 * x + 1] = (__m512bh)_mm512_permutex2var_epi16(first, high, second);
    }
    for (int r = 0; r < kRows; ++r) {
      const auto weight = (__m512bh)_mm512_set1_epi32(static_cast<int>(pairs[r * pairs_stride + j / 2]));
      for (int x = 0; x < 4; ++x) total[r][x] = _mm512_dpbf16_ps(total[r][x], weight, value[x]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int x = 0; x < 4; ++x) _mm512_storeu_ps(sums + r * out_stride + x * 16, total[r][x]);
  }
}

template <Prefetch kPrefetch>
void few_outputs_of_pairs(const Matrix<const float>& weights, const Matrix<const bf16_t>& v,
                          const Matrix<float>& out) {
  constexpr int64_t kKeysOfStep = 256;
  for_groups_of_rows(out.rows, [&]<int kRows>(Sequence<kRows>, int64_t first) {
    alignas(64) bf16_t narrow[kRows * kKeysOfStep];
    for (int r = 0; r < kRows; ++r) {
      for (int64_t j = 0; j < v.rows; j += kWidth)
        store(narrow + r * kKeysOfStep + j, narrow_fast(load_part(weights.row(first + r) + j, v.rows - j)));
    }
    uint32_t pairs[kRows * kKeysOfStep / 2];
    std::memcpy(pairs, narrow, sizeof(pairs));
    for (int64_t d = 0; d < v.cols; d += 64)
      output_block_of_pairs<kRows, kPrefetch>(pairs, kKeysOfStep / 2, v.block(0, v.rows, d, 64),
                                              out.block(first, kRows, d, 64));
  });
}
#endif

/// The size of a block of keys that stays in the L1 cache while all groups of rows read it.
constexpr int64_t kKeyBlockBytes = 16384;

template <Prefetch kPrefetch, class T>
void few_scores_by(const Matrix<const float>& q, const Matrix<const T>& k, const Matrix<float>& scores) {
#if ATTENTIVE_SIMD_HAS_PAIRS
  if constexpr (kIsBf16<T>) {
    if (q.cols % 32 == 0 && q.cols <= kMostPairedColumns) return few_scores_of_pairs<kPrefetch>(q, k, scores);
  }
#endif
  const int64_t fit = kKeyBlockBytes / (static_cast<int64_t>(sizeof(T)) * q.cols) / kSums * kSums,
                block = fit < kSums ? kSums : fit;
  for (int64_t j = 0; j < k.rows; j += block) {
    const int64_t n = k.rows - j < block ? k.rows - j : block;
    const auto keys = k.part(j, n);
    for_groups_of_rows(q.rows, [&]<int kRows>(Sequence<kRows>, int64_t r) {
      const auto score = kRows < 4 || r == 0 ? score_rows<StepF32, kRows, kPrefetch, T>
                                             : score_rows<StepF32, kRows, Prefetch::No, T>;
      score(q.part(r, kRows), keys, scores.block(r, kRows, j, n));
    });
  }
}

/// Calls work<kPrefetch>(): a branch at each prefetch would take a tenth of the time of products from cache.
/// Half types that are widened are prefetched into L1, because widening them takes longer than reading them.
template <class T, class Work>
inline void with_prefetch(const Work& work) {
  constexpr bool kAsItLies = sizeof(T) == sizeof(float) || (kIsBf16<T> && ATTENTIVE_SIMD_HAS_PAIRS);
  if constexpr (kAsItLies) {
    if (prefetch_to_l2) return work.template operator()<Prefetch::IntoL2>();
  }
  work.template operator()<Prefetch::IntoL1>();
}

template <class T>
void few_scores(const Matrix<const float>& q, const Matrix<const T>& k, const Matrix<float>& scores) {
  with_prefetch<T>([&]<Prefetch kPrefetch> { few_scores_by<kPrefetch, T>(q, k, scores); });
}

/// The number of vectors of an output row that are summed at a time.
constexpr int kOutputVectors = kSums / 4;

template <int kRows, int kVectors, Prefetch kPrefetch, class T>
inline void output_block(const Matrix<const float>& weights, const Matrix<const T>& v,
                         const Matrix<float>& out) {
  const int64_t keys = v.rows, part = v.cols, v_stride = v.stride, weights_stride = weights.stride,
                out_stride = out.stride;
  const float* const weight = weights.data;
  const T* const values = v.data;
  float* const sums = out.data;
  Vec total[kRows][kVectors] = {};
  for (int64_t j = 0; j < keys; ++j) {
    Vec value[kVectors];
    for (int x = 0; x < kVectors; ++x) {
      const T* const numbers = values + j * v_stride + x * kWidth;
      prefetch_beyond<kPrefetch>(numbers);
      value[x] = load_part(numbers, part - x * kWidth);
    }
    for (int r = 0; r < kRows; ++r) {
      for (int x = 0; x < kVectors; ++x) total[r][x] += weight[r * weights_stride + j] * value[x];
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int x = 0; x < kVectors; ++x) {
      float* const to = sums + r * out_stride + x * kWidth;
      store_part(to, load_part(to, part - x * kWidth) + total[r][x], part - x * kWidth);
    }
  }
}

template <int kRows, Prefetch kPrefetch, class T>
inline void output_rows(const Matrix<const float>& weights, const Matrix<const T>& v,
                        const Matrix<float>& out) {
  constexpr int64_t kColumns = kOutputVectors * kWidth;
  const auto columns = [&](auto block, int64_t d, int64_t n) {
    block(weights, v.block(0, v.rows, d, n), out.block(0, kRows, d, n));
  };
  int64_t d = 0;
  for (; d + kColumns <= v.cols; d += kColumns)
    columns(output_block<kRows, kOutputVectors, kPrefetch, T>, d, kColumns);
  for (; d < v.cols; d += kWidth)
    columns(output_block<kRows, 1, kPrefetch, T>, d, v.cols - d < kWidth ? v.cols - d : kWidth);
}

template <Prefetch kPrefetch, class T>
void few_outputs_by(const Matrix<const float>& weights, const Matrix<const T>& v, const Matrix<float>& out) {
#if ATTENTIVE_SIMD_HAS_PAIRS
  if constexpr (kIsBf16<T>) {
    if (v.cols % 64 == 0 && v.rows <= 256) return few_outputs_of_pairs<kPrefetch>(weights, v, out);
  }
#endif
  // Each block of keys is summed separately, so that rounding errors grow with the size of a block and the
  // number of blocks rather than their product. Narrow instruction sets sum few columns at a time; for them
  // the block is short, so that the prefetch distance exceeds a block.
  constexpr int64_t kKeysPerSum = ATTENTIVE_SIMD_IS_AVX512 ? 128 : 16;
  for (int64_t j = 0; j < v.rows; j += kKeysPerSum) {
    const auto values = v.part(j, v.rows - j < kKeysPerSum ? v.rows - j : kKeysPerSum);
    for_groups_of_rows(out.rows, [&]<int kRows>(Sequence<kRows>, int64_t r) {
      output_rows<kRows, kPrefetch, T>(weights.block(r, kRows, j, values.rows), values, out.part(r, kRows));
    });
  }
}

template <class T>
void few_outputs(const Matrix<const float>& weights, const Matrix<const T>& v, const Matrix<float>& out) {
  with_prefetch<T>([&]<Prefetch kPrefetch> { few_outputs_by<kPrefetch, T>(weights, v, out); });
}

ATTENTIVE_SIMD_END
