#pragma once

// x W^T for a few rows of x. The weight is not in the cache, and each of its numbers is read once.

#include "kernels/simd/half_types.h"
#include "kernels/simd/matrix.h"
#include "kernels/simd/sums.h"

ATTENTIVE_SIMD_BEGIN

/// The largest number of rows of x per block, and of weight rows: their sums, the vectors of the weight and
/// one vector of x fill the registers.
constexpr int kLinearRows = ATTENTIVE_SIMD_IS_AVX512 || ATTENTIVE_SIMD_IS_NEON ? 4 : 3;
constexpr int kLinearOutputs = 4;

/// The operands of one block of the product: some features of x and of the weight, whose rows have the same
/// stride.
template <class T>
struct LinearBlock {
  const float* x;
  const T* weight;
  int64_t stride, features;
  int64_t outputs;  ///< rows of the weight from this one on
  int64_t ahead;    ///< distance, in numbers, to the weights that are prefetched
  float* out;
  int64_t out_stride;
  bool accumulate;
};

/// Computes kRows rows of x by kLinearOutputs weight rows. Each of the `groups` groups of rows prefetches its
/// share of the weights ahead.
template <int kRows, class T>
void linear_block(const LinearBlock<T>& b, int64_t group, int64_t groups) {
  constexpr int kTotals = (ATTENTIVE_SIMD_IS_AVX512 ? kLinearRows : kRows) * kLinearOutputs;
  Vec total[kTotals];
#pragma GCC unroll 16
  for (auto& t : total) t = Vec{};
  int64_t at[kLinearOutputs];  // a missing weight repeats the first
  for (int j = 0; j < kLinearOutputs; ++j) at[j] = j < b.outputs ? j * b.stride : 0;
  const auto step = [&](int64_t i, int64_t n) __attribute__((always_inline)) {
    Vec weight[kLinearOutputs];
#pragma GCC unroll 4
    for (int j = 0; j < kLinearOutputs; ++j) weight[j] = load_part(b.weight + at[j] + i, n);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const Vec x = load_part(b.x + r * b.stride + i, n);
#pragma GCC unroll 4
      for (int j = 0; j < kLinearOutputs; ++j) total[r * kLinearOutputs + j] += x * weight[j];
    }
  };
  const T* const next = b.weight + b.ahead;
  int64_t i = 0;
  for (; i + kLine<T> <= b.features; i += kLine<T>) {
    for (int64_t j = group; j < kLinearOutputs; j += groups) prefetch(next + j * b.stride + i);
    for (int64_t part = 0; part < kLine<T>; part += kWidth) step(i + part, kWidth);
  }
  for (; i < b.features; i += kWidth) step(i, b.features - i);
  float results[kTotals];
  sums(total, results);
  for (int r = 0; r < kRows; ++r) {
    float* const out = b.out + r * b.out_stride;
    for (int j = 0; j < kLinearOutputs && j < b.outputs; ++j)
      out[j] = results[r * kLinearOutputs + j] + (b.accumulate ? out[j] : 0.0f);
  }
}

template <class T, int... kRows>
void multiply_few_rows_by(Sequence<kRows...>, const Matrix<const float>& x, const Matrix<const T>& weight,
                          const Matrix<float>& out) {
  static constexpr decltype(&linear_block<1, T>) blocks[] = {linear_block<kRows + 1, T>...};
  constexpr int64_t kNumbers = 6144;  // 24 KiB of x, which stay in the L1 cache while all weights are read
  constexpr int64_t kAhead = 8192;    // prefetch distance in bytes
  const int64_t rows = x.rows, features = x.cols, outputs = weight.rows;
  const int64_t groups = (rows + kLinearRows - 1) / kLinearRows;
  const int64_t parts = (features * rows + kNumbers - 1) / kNumbers;
  const int64_t part = ((features + parts - 1) / parts + 63) / 64 * 64;
  const int64_t block_bytes = kLinearOutputs * part * static_cast<int64_t>(sizeof(T));
  const int64_t ahead = (kAhead + block_bytes - 1) / block_bytes * kLinearOutputs * features;
  for (int64_t i = 0; i < features; i += part) {
    const int64_t n = features - i < part ? features - i : part;
    for (int64_t j = 0; j < outputs; j += kLinearOutputs) {
      for (int64_t group = 0; group < groups; ++group) {
        const int64_t r = rows * group / groups, end = rows * (group + 1) / groups;
        const LinearBlock<T> block{x.row(r) + i, weight.row(j) + i, features,   n,    outputs - j,
                                   ahead,        out.row(r) + j,    out.stride, i > 0};
        blocks[end - r - 1](block, group, groups);
      }
    }
  }
}

template <class T>
void multiply_few_rows(const Matrix<const float>& x, const Matrix<const T>& weight,
                       const Matrix<float>& out) {
  multiply_few_rows_by(Count<kLinearRows>::Type{}, x, weight, out);
}

ATTENTIVE_SIMD_END
