#pragma once

// Products of small matrices in blocks whose sums stay in registers.

#include "kernels/gemm/neon.h"
#include "kernels/gemm/products.h"
#include "kernels/simd/half_types.h"
#include "kernels/simd/sums.h"

ATTENTIVE_SIMD_BEGIN

/// The number of rows of the rhs that stay in the L1 cache while all rows of the lhs are multiplied with
/// them. Each such part is summed separately, so that rounding errors grow with this number and not with k.
constexpr int64_t kBlockInner = 128;

constexpr bool kManyRegisters = ATTENTIVE_SIMD_IS_AVX512;  ///< 32 vector registers, else 16

/// One step of the inner dimension in float32. The sums of a block, one row of the rhs and one number of the
/// lhs fill the registers. A product begins at a multiple of kGroup numbers and ends at one of
/// kNumbersOfGroup.
struct StepF32 {
  using Operand = float;
  static constexpr bool kTransposed = false;
  static constexpr int kRows = ATTENTIVE_SIMD_IS_NEON ? 8 : 6, kVectors = kManyRegisters ? 4 : 2;
  static constexpr int64_t kNumbersOfGroup = 1, kGroup = 1;
  static Vec lhs(const float* a) { return all(*a); }
  static Vec add(Vec lhs, Vec rhs, Vec sum) { return sum + lhs * rhs; }
};

/// Such a step for an lhs that is stored transposed (K, M).
struct StepF32Transposed : StepF32 {
  static constexpr bool kTransposed = true;
};

#if ATTENTIVE_SIMD_HAS_PAIRS
/// One step of the inner dimension in bfloat16: a pair of numbers in 32 bits.
struct StepBf16 {
  using Operand = bf16_t;
  static constexpr bool kTransposed = false;
  static constexpr int kRows = 6, kVectors = 4;
  static constexpr int64_t kNumbersOfGroup = 2, kGroup = 2;
  static Vec lhs(const bf16_t* a) {
    uint32_t pair;
    std::memcpy(&pair, a, sizeof(pair));
    return (Vec)all(pair);
  }
  static Vec add(Vec lhs, Vec rhs, Vec sum) {
    return (Vec)_mm512_dpbf16_ps((__m512)sum, (__m512bh)lhs, (__m512bh)rhs);
  }
};
#endif

template <class Step>
int64_t inner_of(const Matrix<const typename Step::Operand>& lhs) {
  return Step::kTransposed ? lhs.rows : lhs.cols;
}

/// The rows [i, i + rows) of an lhs and the numbers [p, p + count) of each.
template <class Step>
Matrix<const typename Step::Operand> lhs_block(const Matrix<const typename Step::Operand>& lhs, int64_t i,
                                               int64_t rows, int64_t p, int64_t count) {
  return Step::kTransposed ? lhs.block(p, count, i, rows) : lhs.block(i, rows, p, count);
}

/// Computes one block of the output. With kPart, it is one vector wide and only the first `out.cols` columns
/// exist.
template <class Step, int kRows, int kVectors, bool kAdd, bool kPart>
void multiply_block(const Matrix<const typename Step::Operand>& lhs,
                    const Rhs<const typename Step::Operand>& rhs, const Matrix<float>& out) {
  static_assert(!kPart || kVectors == 1);
  // Local copies stay in registers: the compiler must assume that the stores may change the views.
  const auto *const a = lhs.data, *const b = rhs.data;
  float* const c = out.data;
  const int64_t k = inner_of<Step>(lhs), lhs_stride = lhs.stride, rhs_stride = rhs.stride,
                out_stride = out.stride, columns = out.cols;
  const auto get = [&](const void* p) {
    const auto* numbers = static_cast<const float*>(p);
    if constexpr (kPart) return load_part(numbers, columns);
    return load<Vec>(numbers);
  };
  Vec sums[kRows][kVectors];
  if constexpr (ATTENTIVE_SIMD_IS_NEON && !Step::kTransposed) {
#if ATTENTIVE_SIMD_IS_NEON
    multiply_neon(Step{}, k, a, lhs_stride, b, rhs_stride, get, sums);
#endif
  } else {
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) sums[i][j] = Vec{};
    }
    for (int64_t p = 0; p < k; p += Step::kNumbersOfGroup) {
      Vec right[kVectors];
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j)
        right[j] = get(b + p * rhs_stride + j * kWidth * Step::kNumbersOfGroup);
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) {
        const Vec left = Step::lhs(a + (Step::kTransposed ? p * lhs_stride + i : i * lhs_stride + p));
#pragma GCC unroll 4
        for (int j = 0; j < kVectors; ++j) sums[i][j] = Step::add(left, right[j], sums[i][j]);
      }
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) {
      float* const to = c + i * out_stride + j * kWidth;
      const Vec total = kAdd ? get(to) + sums[i][j] : sums[i][j];
      if constexpr (kPart) {
        store_part(to, total, columns);
      } else {
        store(to, total);
      }
    }
  }
}

/// The block functions for 1 to kRows rows and 1 to kVectors vectors; index 0 is for part of a vector.
template <class Step, bool kAdd>
struct BlockFunctions {
  using Function = decltype(&multiply_block<Step, 1, 1, false, false>);
  struct Row {
    Function by_vectors[Step::kVectors + 1];
  };
  struct Table {
    Row rows[Step::kRows];
  };

  template <int kRows, int... kVectors>
  static constexpr Row make_row(Sequence<kVectors...>) {
    return {{multiply_block<Step, kRows, 1, kAdd, true>,
             multiply_block<Step, kRows, kVectors + 1, kAdd, false>...}};
  }
  template <int... kRows>
  static constexpr Table make_table(Sequence<kRows...>) {
    return {{make_row<kRows + 1>(typename Count<Step::kVectors>::Type{})...}};
  }
  static constexpr Table table = make_table(typename Count<Step::kRows>::Type{});
};

/// Vectors [first, end) of a register block.
struct Vectors {
  int64_t first, end;
};
/// Returns which of `count` vectors, from column j on, hold columns that rows [i, i + rows) want.
inline Vectors wanted_vectors(const BandBounds& reach, int64_t i, int64_t rows, int64_t j, int64_t count) {
  const int64_t begun = reach.first_column + i - j, reached = reach.columns + i + rows - 1 - j;
  return {begun > 0 ? begun / kWidth : 0, reached < count * kWidth ? (reached + kWidth - 1) / kWidth : count};
}

template <class Step>
void multiply_by_blocks(const Matrix<const typename Step::Operand>& lhs,
                        const Rhs<const typename Step::Operand>& rhs, const Matrix<float>& out,
                        bool accumulate, const BandBounds& reach) {
  const int64_t m = out.rows, n = out.cols, k = inner_of<Step>(lhs);
  const auto whole_steps = [](int64_t numbers) {
    return (numbers + Step::kNumbersOfGroup - 1) & -Step::kNumbersOfGroup;
  };
  for (int64_t j = 0, columns; j < n; j += columns) {
    const int64_t whole = (n - j) / kWidth, vectors = whole < Step::kVectors ? whole : Step::kVectors;
    columns = vectors > 0 ? vectors * kWidth : n - j;
    const int64_t unwanted = j + 1 - reach.columns, first = unwanted > 0 ? unwanted : 0;
    const int64_t wanted = j + columns - reach.first_column, end = wanted < m ? wanted : m;
    // Whether some rows want only some of the vectors.
    const bool partial = vectors > 1 && (reach.columns + first <= j + columns - kWidth ||
                                         reach.first_column + end > j + kWidth);
    const int64_t last = whole_steps(reach.inner_of_column + j + columns - 1), k_end = last < k ? last : k;
    for (int64_t p = 0; p < k; p += kBlockInner) {
      const int64_t inner = k_end - p < kBlockInner ? k_end - p : kBlockInner;
      const bool add = accumulate || p > 0;
      for (int64_t i = first, rows; i < end; i += rows) {
        // The last two blocks share the remaining rows evenly, since a block of few rows does not keep the
        // multipliers busy.
        const int64_t left = end - i;
        rows = left >= 2 * Step::kRows ? Step::kRows : left > Step::kRows ? (left + 1) / 2 : left;
        const int64_t reached = whole_steps(reach.inner + i + rows - 1 - p),
                      begun = reach.first_inner + i - p;
        const int64_t stop = reached < inner ? reached : inner, start = begun > 0 ? begun & -Step::kGroup : 0;
        if (add && stop <= start) continue;
        Vectors part{0, vectors};
        if (partial) {
          part = wanted_vectors(reach, i, rows, j, vectors);
          if (part.end <= part.first) continue;
        }
        const int64_t from = j + part.first * kWidth,
                      width = partial ? (part.end - part.first) * kWidth : columns;
        const auto block =
            add ? BlockFunctions<Step, true>::table.rows[rows - 1].by_vectors[part.end - part.first]
                : BlockFunctions<Step, false>::table.rows[rows - 1].by_vectors[part.end - part.first];
        block(lhs_block<Step>(lhs, i, rows, p + start, stop - start),
              rhs.block(p + start, stop - start, from, width), out.block(i, rows, from, width));
      }
    }
  }
}

void multiply(const Matrix<const float>& lhs, const Rhs<const float>& rhs, const Matrix<float>& out,
              bool accumulate, const BandBounds& reach) {
  multiply_by_blocks<StepF32>(lhs, rhs, out, accumulate, reach);
}

void add_transposed(const Matrix<const float>& lhs, const Rhs<const float>& rhs, const Matrix<float>& out,
                    const BandBounds& reach) {
  multiply_by_blocks<StepF32Transposed>(lhs, rhs, out, true, reach);
}

#if ATTENTIVE_SIMD_HAS_PAIRS || ATTENTIVE_SIMD_IS_NEON_BF16
void multiply_pairs(const Matrix<const bf16_t>& lhs, const Rhs<const bf16_t>& rhs, const Matrix<float>& out,
                    bool accumulate, const BandBounds& reach) {
  multiply_by_blocks<StepBf16>(lhs, rhs, out, accumulate, reach);
}
#else
constexpr decltype(Pointer<void(const Matrix<const bf16_t>&, const Rhs<const bf16_t>&, const Matrix<float>&,
                                bool, const BandBounds&)>::function) multiply_pairs = nullptr;
#endif

ATTENTIVE_SIMD_END
