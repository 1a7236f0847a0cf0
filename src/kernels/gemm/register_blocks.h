// Part of simd_impl.h, inside its namespace: products of small matrices, by blocks whose sums stay in
// registers.
#pragma once

// Rows of the right-hand side that stay in the nearest cache while every row of the left-hand side meets
// them. Each such part is summed by itself, so that rounding errors grow with this number, not with k.
constexpr int64_t kBlockInner = 128;

constexpr bool kManyRegisters = ATTENTIVE_SIMD_IS_AVX512;  // 32 of them, else 16

// One step of the inner dimension in float32. The block: sums, one row of the right-hand side and one number
// of the left-hand side fill the registers.
struct StepF32 {
  using Element = float;
  static constexpr int kNumbers = 1, kRows = 6, kVectors = kManyRegisters ? 4 : 2;
  static Vec left(const float* a) { return all(*a); }
  static Vec add(Vec left, Vec right, Vec sum) { return sum + left * right; }
};

#if ATTENTIVE_SIMD_IS_AVX512 && defined(__AVX512BF16__)
// One step in bfloat16: a pair of numbers, in 32 bits.
struct StepBf16 {
  using Element = bf16_t;
  static constexpr int kNumbers = 2, kRows = 6, kVectors = 4;
  static Vec left(const bf16_t* a) {
    uint32_t pair;
    std::memcpy(&pair, a, sizeof(pair));
    return (Vec)all(pair);
  }
  static Vec add(Vec left, Vec right, Vec sum) {
    return (Vec)_mm512_dpbf16_ps((__m512)sum, (__m512bh)left, (__m512bh)right);
  }
};
#endif

// kPart: one vector, of which only the first `columns` are there.
template <class Step, int kRows, int kVectors, bool kAdd, bool kPart>
void gemm_block(int64_t k, const typename Step::Element* a, int64_t lda, const typename Step::Element* b,
                int64_t ldb, float* c, int64_t ldc, int64_t columns) {
  static_assert(!kPart || kVectors == 1);
  const auto get = [&](const void* p) {
    const auto* numbers = static_cast<const float*>(p);
    if constexpr (kPart) return load_part(numbers, columns);
    return load<Vec>(numbers);
  };
  Vec sums[kRows][kVectors];
#pragma GCC unroll 6
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) sums[i][j] = Vec{};
  }
  for (int64_t p = 0; p < k; p += Step::kNumbers) {
    Vec right[kVectors];
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) right[j] = get(b + p * ldb + j * kWidth * Step::kNumbers);
#pragma GCC unroll 6
    for (int i = 0; i < kRows; ++i) {
      const Vec left = Step::left(a + i * lda + p);
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) sums[i][j] = Step::add(left, right[j], sums[i][j]);
    }
  }
#pragma GCC unroll 6
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) {
      float* out = c + i * ldc + j * kWidth;
      const Vec total = kAdd ? get(out) + sums[i][j] : sums[i][j];
      if constexpr (kPart) {
        store_part(out, total, columns);
      } else {
        store(out, total);
      }
    }
  }
}

// The numbers 0 … n - 1 as template arguments. (<utility> would bring inline code of the library.)
template <int... kNumbers>
struct Sequence {};
template <int n, int... kNumbers>
struct Count : Count<n - 1, n - 1, kNumbers...> {};
template <int... kNumbers>
struct Count<0, kNumbers...> {
  using Type = Sequence<kNumbers...>;
};

// The block functions of 1 to kRows rows by 1 to kVectors vectors; index 0: a part of one.
template <class Step, bool kAdd>
struct GemmBlocks {
  using Function = decltype(&gemm_block<Step, 1, 1, false, false>);
  struct Row {
    Function of[Step::kVectors + 1];
  };
  struct Table {
    Row rows[Step::kRows];
  };

  template <int kRows, int... kVectors>
  static constexpr Row make_row(Sequence<kVectors...>) {
    return {{gemm_block<Step, kRows, 1, kAdd, true>, gemm_block<Step, kRows, kVectors + 1, kAdd, false>...}};
  }
  template <int... kRows>
  static constexpr Table make_table(Sequence<kRows...>) {
    return {{make_row<kRows + 1>(typename Count<Step::kVectors>::Type{})...}};
  }
  static constexpr Table table = make_table(typename Count<Step::kRows>::Type{});
};

template <class Step>
void gemm_steps(int64_t m, int64_t n, int64_t k, const typename Step::Element* a, int64_t lda,
                const typename Step::Element* b, int64_t ldb, float* c, int64_t ldc, bool accumulate,
                Reach reach = {}) {
  for (int64_t j = 0, columns; j < n; j += columns) {
    const int64_t whole = (n - j) / kWidth, vectors = whole < Step::kVectors ? whole : Step::kVectors;
    columns = vectors > 0 ? vectors * kWidth : n - j;
    const int64_t unwanted = j + 1 - reach.columns, first = unwanted > 0 ? unwanted : 0;
    for (int64_t p = 0; p < k; p += kBlockInner) {
      const int64_t inner = k - p < kBlockInner ? k - p : kBlockInner;
      const bool add = accumulate || p > 0;
      for (int64_t i = first, rows; i < m; i += rows) {
        // Two blocks at the end share what is left: few rows do not keep the multipliers busy.
        const int64_t left = m - i;
        rows = left >= 2 * Step::kRows ? Step::kRows : left > Step::kRows ? (left + 1) / 2 : left;
        const int64_t reached = reach.inner + i + rows - 1 - p;
        if (add && reached <= 0) continue;
        const auto block = add ? GemmBlocks<Step, true>::table.rows[rows - 1].of[vectors]
                               : GemmBlocks<Step, false>::table.rows[rows - 1].of[vectors];
        block(reached < inner ? reached : inner, a + i * lda + p, lda, b + p * ldb + j * Step::kNumbers, ldb,
              c + i * ldc + j, ldc, columns);
      }
    }
  }
}

void gemm(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb, float* c,
          int64_t ldc, bool accumulate) {
  gemm_steps<StepF32>(m, n, k, a, lda, b, ldb, c, ldc, accumulate);
}

void gemm_causal(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb,
                 float* c, int64_t ldc, bool accumulate, Reach reach) {
  gemm_steps<StepF32>(m, n, k, a, lda, b, ldb, c, ldc, accumulate, reach);
}

#if ATTENTIVE_SIMD_IS_AVX512 && defined(__AVX512BF16__)
void gemm16(int64_t m, int64_t n, int64_t k, const bf16_t* a, int64_t lda, const bf16_t* b, int64_t ldb,
            float* c, int64_t ldc, bool accumulate) {
  gemm_steps<StepBf16>(m, n, k, a, lda, b, ldb, c, ldc, accumulate);
}
#else
constexpr decltype(Simd::gemm16) gemm16 = nullptr;
#endif
