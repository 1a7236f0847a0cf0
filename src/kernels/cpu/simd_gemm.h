// Part of simd_impl.h, inside its namespace: products of small matrices of float32.
#pragma once

// Sums of kRows x (kCols vectors) stay in registers: 6 x 4 of the 32 that AVX-512 has, one for the left and
// four for the right side. kPart: one vector with the columns of `mask`.
template <int kRows, int kCols, bool kAdd, bool kPart>
void gemm_block(int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb, float* c, int64_t ldc,
                __mmask16 mask) {
  static_assert(!kPart || kCols == 1);
  const auto get = [&](const float* p) {
    if constexpr (kPart) return _mm512_maskz_loadu_ps(mask, p);
    return _mm512_loadu_ps(p);
  };
  __m512 sums[kRows][kCols];
#pragma GCC unroll 6
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kCols; ++j) sums[i][j] = _mm512_setzero_ps();
  }
  for (int64_t p = 0; p < k; ++p) {
    __m512 right[kCols];
#pragma GCC unroll 4
    for (int j = 0; j < kCols; ++j) right[j] = get(b + p * ldb + 16 * j);
#pragma GCC unroll 6
    for (int i = 0; i < kRows; ++i) {
      const __m512 left = _mm512_set1_ps(a[i * lda + p]);
#pragma GCC unroll 4
      for (int j = 0; j < kCols; ++j) sums[i][j] = _mm512_fmadd_ps(left, right[j], sums[i][j]);
    }
  }
#pragma GCC unroll 6
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kCols; ++j) {
      float* const out = c + i * ldc + 16 * j;
      const __m512 total = kAdd ? _mm512_add_ps(get(out), sums[i][j]) : sums[i][j];
      if constexpr (kPart) {
        _mm512_mask_storeu_ps(out, mask, total);
      } else {
        _mm512_storeu_ps(out, total);
      }
    }
  }
}

constexpr int64_t kBlockRows = 6, kBlockVectors = 4;
// Rows of the right side that stay in the nearest cache. Each such part is summed by itself and then added:
// rounding errors grow with this number and the number of parts, not with k.
constexpr int64_t kBlockInner = 128;

using GemmBlock = decltype(&gemm_block<1, 1, false, false>);

// Blocks of 1 to 6 rows by 1 to 4 vectors, and by a part of one.
template <bool kAdd>
struct GemmBlocks {
  template <int kRows>
  struct Row {
    static constexpr GemmBlock of[kBlockVectors + 1] = {
        gemm_block<kRows, 1, kAdd, true>, gemm_block<kRows, 1, kAdd, false>,
        gemm_block<kRows, 2, kAdd, false>, gemm_block<kRows, 3, kAdd, false>,
        gemm_block<kRows, 4, kAdd, false>};
  };
  static constexpr const GemmBlock* of[kBlockRows] = {Row<1>::of, Row<2>::of, Row<3>::of,
                                                      Row<4>::of, Row<5>::of, Row<6>::of};
};

void gemm(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb, float* c,
          int64_t ldc, bool accumulate) {
  for (int64_t j = 0, columns; j < n; j += columns) {
    const int64_t whole = (n - j) / 16, vectors = whole < kBlockVectors ? whole : kBlockVectors;
    columns = vectors > 0 ? vectors * 16 : n - j;
    const auto mask = static_cast<__mmask16>((1u << columns % 16) - 1);
    for (int64_t p = 0; p < k; p += kBlockInner) {
      const int64_t inner = k - p < kBlockInner ? k - p : kBlockInner;
      const auto& blocks = accumulate || p > 0 ? GemmBlocks<true>::of : GemmBlocks<false>::of;
      for (int64_t i = 0, rows; i < m; i += rows) {
        // Two blocks at the end share what is left: few rows do not keep the multipliers busy.
        const int64_t left = m - i;
        rows = left >= 2 * kBlockRows ? kBlockRows : left > kBlockRows ? (left + 1) / 2 : left;
        blocks[rows - 1][vectors](inner, a + i * lda + p, lda, b + p * ldb + j, ldb, c + i * ldc + j, ldc,
                                  mask);
      }
    }
  }
}
