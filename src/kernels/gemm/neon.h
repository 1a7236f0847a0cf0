#pragma once

// The inner loops of register_blocks.h for ARM. `get` loads a vector of the rhs.

#include <attentive/score/vectors/vector.h>

#include "kernels/simd/matrix.h"

#if ATTENTIVE_SIMD_IS_NEON

ATTENTIVE_SIMD_BEGIN

struct StepF32;

/// Adds to sums[i] the product of number `lane` of left[i] and a row of the rhs.
template <int lane, int kRows, int kVectors, class Get>
inline __attribute__((always_inline)) void add_products(const float32x4_t (&left)[kRows], const float* b,
                                                        const Get& get, Vec (&sums)[kRows][kVectors]) {
#pragma GCC unroll 2
  for (int j = 0; j < kVectors; ++j) {
    const auto right = (float32x4_t)get(b + j * kWidth);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i)
      sums[i][j] = (Vec)vfmaq_laneq_f32((float32x4_t)sums[i][j], right, left[i], lane);
  }
}

/// Computes sums[i][j], the product of row i of the lhs and vector j of columns of the rhs.
template <int kRows, int kVectors, class Get>
inline __attribute__((always_inline)) void multiply_neon(const StepF32&, int64_t k, const float* a,
                                                         int64_t lda, const float* b, int64_t ldb,
                                                         const Get& get, Vec (&sums)[kRows][kVectors]) {
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
    for (int j = 0; j < kVectors; ++j) sums[i][j] = Vec{};
  }
  float32x4_t left[kRows];
  int64_t p = 0;
  for (; p + 4 <= k; p += 4, b += 4 * ldb) {
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) left[i] = vld1q_f32(a + i * lda + p);
    add_products<0>(left, b, get, sums);
    add_products<1>(left, b + ldb, get, sums);
    add_products<2>(left, b + 2 * ldb, get, sums);
    add_products<3>(left, b + 3 * ldb, get, sums);
  }
  for (; p < k; ++p, b += ldb) {
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) left[i] = vdupq_n_f32(a[i * lda + p]);
    add_products<0>(left, b, get, sums);
  }
}

#if ATTENTIVE_SIMD_IS_NEON_BF16
/// The instruction bfmmla multiplies a 2 x 4 tile by a 4 x 2 tile.
struct StepBf16 {
  using Operand = bf16_t;
  static constexpr bool kTransposed = false;
  static constexpr int64_t kNumbersOfGroup = 2, kGroup = 4;  ///< the rhs is packed in pairs of rows
  static constexpr int kRows = 8, kVectors = 2;
};

/// Loads kCount numbers (4, or the last 2 and two zeros) of two rows of the lhs.
template <int kCount>
inline bfloat16x8_t left_tile(const bf16_t* first, const bf16_t* second) {
  uint64_t rows[2] = {};
  std::memcpy(&rows[0], first, kCount * sizeof(bf16_t));
  std::memcpy(&rows[1], second, kCount * sizeof(bf16_t));
  return vreinterpretq_bf16_u64(vcombine_u64(vcreate_u64(rows[0]), vcreate_u64(rows[1])));
}

/// One step of the inner dimension: kCount numbers of each row of the lhs, starting at a, and as many rows of
/// the rhs, starting at b.
template <int kCount, int kRows, int kVectors, int kTiles, class Get>
inline __attribute__((always_inline)) void multiply_tiles(const bf16_t* a, int64_t lda, const bf16_t* b,
                                                          int64_t ldb, const Get& get,
                                                          float32x4_t (&tiles)[kTiles][2 * kVectors]) {
  bfloat16x8_t left[kTiles];
#pragma GCC unroll 4
  for (int i = 0; i < kTiles; ++i) {
    const bf16_t* const row = a + 2 * i * lda;
    left[i] = left_tile<kCount>(row, 2 * i + 1 < kRows ? row + lda : row);
  }
#pragma GCC unroll 2
  for (int j = 0; j < kVectors; ++j) {
    const bf16_t* const pairs = b + j * kWidth * 2;
    const auto upper = (float32x4_t)get(pairs);
    const auto lower = kCount == 4 ? (float32x4_t)get(pairs + 2 * ldb) : vdupq_n_f32(0.0f);
    const auto front = vreinterpretq_bf16_f32(vzip1q_f32(upper, lower));
    const auto back = vreinterpretq_bf16_f32(vzip2q_f32(upper, lower));
#pragma GCC unroll 4
    for (int i = 0; i < kTiles; ++i) {
      tiles[i][2 * j] = vbfmmlaq_f32(tiles[i][2 * j], left[i], front);
      tiles[i][2 * j + 1] = vbfmmlaq_f32(tiles[i][2 * j + 1], left[i], back);
    }
  }
}

/// Overload for bfloat16. The last of an odd number of rows is multiplied twice.
template <int kRows, int kVectors, class Get>
inline __attribute__((always_inline)) void multiply_neon(const StepBf16&, int64_t k, const bf16_t* a,
                                                         int64_t lda, const bf16_t* b, int64_t ldb,
                                                         const Get& get, Vec (&sums)[kRows][kVectors]) {
  constexpr int kTiles = (kRows + 1) / 2;
  float32x4_t tiles[kTiles][2 * kVectors];
#pragma GCC unroll 4
  for (int i = 0; i < kTiles; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < 2 * kVectors; ++j) tiles[i][j] = vdupq_n_f32(0.0f);
  }
  int64_t p = 0;
  for (; p + 4 <= k; p += 4) multiply_tiles<4, kRows, kVectors>(a + p, lda, b + p * ldb, ldb, get, tiles);
  if (p < k) multiply_tiles<2, kRows, kVectors>(a + p, lda, b + p * ldb, ldb, get, tiles);
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
    for (int j = 0; j < kVectors; ++j) {
      const auto front = vreinterpretq_f64_f32(tiles[i / 2][2 * j]),
                 back = vreinterpretq_f64_f32(tiles[i / 2][2 * j + 1]);
      sums[i][j] = (Vec)(i % 2 == 0 ? vzip1q_f64(front, back) : vzip2q_f64(front, back));
    }
  }
}
#endif

ATTENTIVE_SIMD_END

#endif
