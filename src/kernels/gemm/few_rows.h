#pragma once

// x W^T for a few rows of x. The weight is not in the cache, and each of its numbers is read once. There are
// two ways. For the fewest rows, a vector holds several features of a row, and the lanes of a sum are added
// at the end of a row of the weight. For more rows, a vector holds a feature of several rows of the
// transposed x, and each number of the weight is multiplied with vectors.

#include "kernels/simd/half_types.h"
#include "kernels/simd/matrix.h"
#include "kernels/simd/sums.h"
#include "kernels/simd/vector_code.h"

ATTENTIVE_SIMD_BEGIN

/// The largest number of rows of x per block, and of weight rows: their sums, the vectors of the weight and
/// one vector of x fill the registers.
constexpr int kLinearRows = ATTENTIVE_SIMD_IS_AVX512 || ATTENTIVE_SIMD_IS_NEON ? 4 : 3;
constexpr int kLinearOutputs = 4;

/// How many lines before its use a line of the weight comes into the L1 cache.
constexpr int64_t kNearLines = 2;

/// Prefetches a weight from memory in two steps: into the L2 cache, and from there into L1, which can wait
/// for few lines at a time. A weight in L3 gains from the second step. Where memory is read best into L1 at
/// once (CpuFeatures::prefetch_to_l2), both steps are at the same distance.
inline void prefetch_in_steps(const void* ahead, const void* near) {
  __builtin_prefetch(ahead, 0, 2);
  prefetch(near);
}
inline int64_t near_of(int64_t numbers, int64_t ahead) {
  return prefetch_to_l2 ? numbers : ahead;
}

/// One step along the features in float32; a weight of a half type is widened.
template <class T>
struct WidenedStep {
  using X = float;
  using Weight = T;
  static constexpr int64_t kFeatures = kWidth;
  template <class Number>
  static Vec load_features(const Number* p, int64_t n) {
    return load_part(p, n);
  }
  static Vec add(Vec x, Vec weight, Vec sum) { return sum + x * weight; }
};

#if ATTENTIVE_SIMD_HAS_PAIRS || ATTENTIVE_SIMD_IS_NEON_BF16
/// One step along the features in bfloat16, which are multiplied in pairs as they lie in memory.
struct PairedStep {
  using X = bf16_t;
  using Weight = bf16_t;
  static constexpr int64_t kFeatures = 2 * kWidth;
  static Vec load_features(const bf16_t* p, int64_t n) {
    Vec v = {};
    if (n >= kFeatures) {
      std::memcpy(&v, p, sizeof(v));
    } else {
      std::memcpy(&v, p, static_cast<size_t>(n) * sizeof(bf16_t));
    }
    return v;
  }
  static Vec add(Vec x, Vec weight, Vec sum) {
#if ATTENTIVE_SIMD_HAS_PAIRS
    return (Vec)_mm512_dpbf16_ps((__m512)sum, (__m512bh)x, (__m512bh)weight);
#else
    return (Vec)vbfdotq_f32((float32x4_t)sum, (bfloat16x8_t)x, (bfloat16x8_t)weight);
#endif
  }
};
#endif

/// The operands of one block of the product: some features of x and of the weight, whose rows have the same
/// stride.
template <class Step>
struct LinearBlock {
  const typename Step::X* x;
  const typename Step::Weight* weight;
  int64_t stride, features;
  int64_t outputs;  ///< rows of the weight from this one on
  int64_t ahead;    ///< distance, in numbers, to the weights that are prefetched from memory
  int64_t near;     ///< distance to those that are prefetched into the L1 cache
  float* out;
  int64_t out_stride;
  bool accumulate;
};

/// Computes kRows rows of x by kLinearOutputs weight rows. Each of the `groups` groups of rows prefetches its
/// share of the weights ahead.
template <class Step, int kRows>
void linear_block(const LinearBlock<Step>& b, int64_t group, int64_t groups) {
  constexpr int kTotals = (ATTENTIVE_SIMD_IS_AVX512 ? kLinearRows : kRows) * kLinearOutputs;
  constexpr int64_t kLineOfWeights = kLine<typename Step::Weight>;
  Vec total[kTotals];
#pragma GCC unroll 16
  for (auto& t : total) t = Vec{};
  int64_t offset[kLinearOutputs];  // a missing weight repeats the first
  for (int j = 0; j < kLinearOutputs; ++j) offset[j] = j < b.outputs ? j * b.stride : 0;
  const auto step = [&](int64_t i, int64_t n) __attribute__((always_inline)) {
    Vec weight[kLinearOutputs];
#pragma GCC unroll 4
    for (int j = 0; j < kLinearOutputs; ++j) weight[j] = Step::load_features(b.weight + offset[j] + i, n);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const Vec x = Step::load_features(b.x + r * b.stride + i, n);
#pragma GCC unroll 4
      for (int j = 0; j < kLinearOutputs; ++j) {
        auto& sum = total[r * kLinearOutputs + j];
        sum = Step::add(x, weight[j], sum);
      }
    }
  };
  const auto* const next = b.weight + b.ahead;
  int64_t i = 0;
  for (; i + kLineOfWeights <= b.features; i += kLineOfWeights) {
    for (int64_t j = group; j < kLinearOutputs; j += groups)
      prefetch_in_steps(next + j * b.stride + i, b.weight + j * b.stride + i + b.near);
    for (int64_t part = 0; part < kLineOfWeights; part += Step::kFeatures) step(i + part, Step::kFeatures);
  }
  for (; i < b.features; i += Step::kFeatures) step(i, b.features - i);
  float results[kTotals];
  sums(total, results);
  for (int r = 0; r < kRows; ++r) {
    float* const out = b.out + r * b.out_stride;
    for (int j = 0; j < kLinearOutputs && j < b.outputs; ++j)
      out[j] = results[r * kLinearOutputs + j] + (b.accumulate ? out[j] : 0.0f);
  }
}

template <class Step, int... kRows>
void multiply_few_rows_by(Sequence<kRows...>, const Matrix<const typename Step::X>& x,
                          const Matrix<const typename Step::Weight>& weight, const Matrix<float>& out) {
  static constexpr decltype(&linear_block<Step, 1>) blocks[] = {linear_block<Step, kRows + 1>...};
  constexpr int64_t kBytesOfX = 24 * 1024;  // they stay in the L1 cache while all weights are read
  constexpr int64_t kBytesAhead = 8192;     // prefetch distance in bytes
  constexpr int64_t kSizeOfX = sizeof(typename Step::X), kSizeOfWeight = sizeof(typename Step::Weight);
  const int64_t rows = x.rows, features = x.cols, outputs = weight.rows;
  const int64_t groups = (rows + kLinearRows - 1) / kLinearRows;
  const int64_t parts = (features * rows * kSizeOfX + kBytesOfX - 1) / kBytesOfX;
  const int64_t part = ((features + parts - 1) / parts + 63) / 64 * 64;
  const int64_t block_bytes = kLinearOutputs * part * kSizeOfWeight;
  const int64_t ahead = (kBytesAhead + block_bytes - 1) / block_bytes * kLinearOutputs * features;
  const int64_t near = near_of(kNearLines * kLine<typename Step::Weight>, ahead);
  for (int64_t i = 0; i < features; i += part) {
    const int64_t n = features - i < part ? features - i : part;
    for (int64_t j = 0; j < outputs; j += kLinearOutputs) {
      for (int64_t group = 0; group < groups; ++group) {
        const int64_t r = rows * group / groups, end = rows * (group + 1) / groups;
        const LinearBlock<Step> block{x.row(r) + i, weight.row(j) + i, features,   n,    outputs - j, ahead,
                                      near,         out.row(r) + j,    out.stride, i > 0};
        blocks[end - r - 1](block, group, groups);
      }
    }
  }
}

template <class T>
void multiply_few_rows(const Matrix<const float>& x, const Matrix<const T>& weight,
                       const Matrix<float>& out) {
  multiply_few_rows_by<WidenedStep<T>>(Count<kLinearRows>::Type{}, x, weight, out);
}

#if ATTENTIVE_SIMD_HAS_PAIRS || ATTENTIVE_SIMD_IS_NEON_BF16
void multiply_few_pairs(const Matrix<const bf16_t>& x, const Matrix<const bf16_t>& weight,
                        const Matrix<float>& out) {
  multiply_few_rows_by<PairedStep>(Count<kLinearRows>::Type{}, x, weight, out);
}
#else
constexpr decltype(Pointer<void(const Matrix<const bf16_t>&, const Matrix<const bf16_t>&,
                                const Matrix<float>&)>::function) multiply_few_pairs = nullptr;
#endif

/// The outputs and vectors of rows of a block of the product with a transposed x, whose sums fill the
/// registers.
constexpr int kAcrossOutputs = ATTENTIVE_SIMD_IS_AVX512 ? 8 : ATTENTIVE_SIMD_IS_NEON ? 4 : 6;
constexpr int kAcrossVectors = ATTENTIVE_SIMD_IS_NEON ? 4 : 2;

/// One line of the weight, in float32. Half types are widened to a buffer.
template <class T>
struct LineOfWeight {
  static constexpr int64_t kNumbersOfLine = 16;
  float numbers[kNumbersOfLine];
  const float* load_line(const T* p, int64_t n) {
    for (int64_t i = 0; i < n; i += kWidth) store(numbers + i, load_part(p + i, n - i));
    return numbers;
  }
};
template <>
struct LineOfWeight<float> {
  static constexpr int64_t kNumbersOfLine = 16;
  const float* load_line(const float* p, int64_t) { return p; }
};

/// out = weight x, or out += weight x, for some features of kAcrossOutputs rows of the weight and kVectors
/// vectors of x's columns. `ahead` and `near` are those of LinearBlock.
template <class T, int kVectors>
void across_block(const Matrix<const T>& weight, int64_t ahead, int64_t near, const Matrix<const float>& x,
                  const Matrix<float>& out, bool accumulate) {
  constexpr int64_t kNumbersOfLine = LineOfWeight<T>::kNumbersOfLine;
  Vec total[kAcrossOutputs][kVectors];
#pragma GCC unroll 8
  for (auto& row : total) {
#pragma GCC unroll 4
    for (auto& t : row) t = Vec{};
  }
  const T* row[kAcrossOutputs];  // a missing row repeats the first
  for (int j = 0; j < kAcrossOutputs; ++j) row[j] = weight.row(j < weight.rows ? j : 0);
  const int64_t features = weight.cols, x_stride = x.stride;
  const float* column = x.data;
  for (int64_t i = 0; i < features; i += kNumbersOfLine) {
    LineOfWeight<T> lines[kAcrossOutputs];
    const float* line[kAcrossOutputs];
    const int64_t n = features - i < kNumbersOfLine ? features - i : kNumbersOfLine;
#pragma GCC unroll 8
    for (int j = 0; j < kAcrossOutputs; ++j) {
      if (i % kLine<T> == 0) prefetch_in_steps(row[j] + ahead + i, row[j] + near + i);
      line[j] = lines[j].load_line(row[j] + i, n);
    }
    for (int64_t f = 0; f < n; ++f, column += x_stride) {
      Vec numbers[kVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) numbers[v] = load<Vec>(column + v * kWidth);
#pragma GCC unroll 8
      for (int j = 0; j < kAcrossOutputs; ++j) {
        const Vec w = all(line[j][f]);
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) total[j][v] += w * numbers[v];
      }
    }
  }
  for (int j = 0; j < kAcrossOutputs && j < weight.rows; ++j) {
    for (int v = 0; v < kVectors; ++v) {
      float* const to = out.row(j) + v * kWidth;
      store(to, accumulate ? load<Vec>(to) + total[j][v] : total[j][v]);
    }
  }
}

template <class T, int... kVectors>
void multiply_across_by(Sequence<kVectors...>, const Matrix<const T>& weight, const Matrix<const float>& x,
                        const Matrix<float>& out) {
  static constexpr decltype(&across_block<T, 1>) blocks[] = {across_block<T, kVectors + 1>...};
  constexpr int64_t kFeaturePart =
      256;  // features that are summed separately, so that rounding errors do not grow
  constexpr int64_t kNumbersAhead = 8192 / (kAcrossOutputs * static_cast<int64_t>(sizeof(T)));
  const int64_t features = weight.cols;
  for (int64_t j = 0; j < weight.rows; j += kAcrossOutputs) {
    const int64_t outputs = weight.rows - j < kAcrossOutputs ? weight.rows - j : kAcrossOutputs;
    for (int64_t i = 0; i < features; i += kFeaturePart) {
      const int64_t n = features - i < kFeaturePart ? features - i : kFeaturePart;
      const int64_t ahead =
          i + kNumbersAhead < features ? kNumbersAhead : kNumbersAhead + (kAcrossOutputs - 1) * features;
      const int64_t near = near_of(kNearLines * kLine<T>, ahead);
      for (int64_t c = 0; c < x.cols; c += kAcrossVectors * kWidth) {
        const int64_t vectors = (x.cols - c) / kWidth;
        const int64_t width = vectors < kAcrossVectors ? vectors : kAcrossVectors;
        blocks[width - 1](weight.block(j, outputs, i, n), ahead, near, x.block(i, n, c, width * kWidth),
                          out.block(j, outputs, c, width * kWidth), i > 0);
      }
    }
  }
}

template <class T>
void multiply_across(const Matrix<const T>& weight, const Matrix<const float>& x, const Matrix<float>& out) {
  multiply_across_by<T>(Count<kAcrossVectors>::Type{}, weight, x, out);
}

ATTENTIVE_SIMD_END
