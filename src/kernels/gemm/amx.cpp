// This source must not include library headers with inline code, because it is compiled for instructions that
// the running CPU may lack.
#include "kernels/gemm/products.h"

// Clang called these macros __AMXBF16__ and __AMXTILE__ up to release 14.
#if (defined(__AMX_BF16__) || defined(__AMXBF16__)) && defined(__linux__)

#include <cstring>
#include <immintrin.h>

#include "kernels/gemm/amx_tiles.h"

namespace attentive::kernels::cpu {
namespace {

// The tile registers have 16 rows of 64 bytes. Registers 0 to 3 hold sums (two blocks of rows by two of
// columns), 4 and 5 the lhs, 6 and 7 the rhs.
constexpr int64_t kSide = 16;       // rows of a register, and columns of sums
constexpr int64_t kInner = 32;      // bf16 numbers per row
constexpr int64_t kFloatBytes = 4;  // size of a sum, and of a pair of bf16
constexpr int64_t kNumbersAhead =
    128;  // numbers of a row between those that are multiplied and those fetched

// Rows and columns that the registers hold; 0: not used.
struct Shape {
  int64_t rows[2] = {0, 0}, columns[2] = {0, 0};

  bool operator==(const Shape&) const = default;
};

thread_local Shape configured;

void configure(const Shape& shape) {
  if (shape == configured) return;
  struct alignas(64) {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {};
    uint8_t rows[16] = {};
  } config;
  const auto set = [&](int64_t tile, int64_t rows, int64_t bytes) {
    if (rows == 0 || bytes == 0) return;
    config.rows[tile] = static_cast<uint8_t>(rows);
    config.row_bytes[tile] = static_cast<uint16_t>(bytes);
  };
  for (int64_t i = 0; i < 2; ++i) {
    for (int64_t j = 0; j < 2; ++j) set(2 * i + j, shape.rows[i], shape.columns[j] * kFloatBytes);
    set(4 + i, shape.rows[i], kInner * 2);
    set(6 + i, kSide, shape.columns[i] * kFloatBytes);
  }
  AmxTiles::written_for_tiles();
  _tile_loadconfig(&config);
  configured = shape;
}

// The rest of the inner dimension after whole registers, padded with zeros to a whole register.
struct Tail {
  int64_t size = 0;
  const bf16_t* left = nullptr;  // rows of kInner
};

// Fetches the lhs of a later step, one cache line of each row.
inline void fetch(const bf16_t* left, int64_t left_row) {
  for (int64_t r = 0; r < 2 * kSide; ++r) __builtin_prefetch(left + r * left_row, 0, 3);
}

template <bool kTwoRows, bool kTwoColumns, bool kFetch>
void multiply(const Shape& shape, int64_t k, const bf16_t* a, int64_t lda, const bf16_t* b, int64_t ldb,
              float* c, int64_t ldc, bool accumulate, const Tail& tail) {
  const int64_t row = ldc * kFloatBytes;
  float *right = c + kSide, *below = c + kSide * ldc, *across = below + kSide;
  if (accumulate) {
    _tile_loadd(0, c, row);
    if (kTwoColumns) _tile_loadd(1, right, row);
    if (kTwoRows) _tile_loadd(2, below, row);
    if (kTwoRows && kTwoColumns) _tile_loadd(3, across, row);
  } else {
    _tile_zero(0);
    if (kTwoColumns) _tile_zero(1);
    if (kTwoRows) _tile_zero(2);
    if (kTwoRows && kTwoColumns) _tile_zero(3);
  }
  const auto step = [](const bf16_t* left, int64_t left_row, const bf16_t* pairs, int64_t pairs_row) {
    _tile_loadd(6, pairs, pairs_row * kFloatBytes);
    _tile_loadd(4, left, left_row * 2);
    _tile_dpbf16ps(0, 4, 6);
    if (kTwoColumns) {
      _tile_loadd(7, pairs + 2 * kSide, pairs_row * kFloatBytes);
      _tile_dpbf16ps(1, 4, 7);
    }
    if (kTwoRows) {
      _tile_loadd(5, left + kSide * left_row, left_row * 2);
      _tile_dpbf16ps(2, 5, 6);
      if (kTwoColumns) _tile_dpbf16ps(3, 5, 7);
    }
  };
  int64_t p = 0;
  for (; p + kInner <= k; p += kInner) {
    if (kFetch) {
      const int64_t later = p + kNumbersAhead;
      fetch(later < k ? a + later : a + 2 * kSide * lda + later - k, lda);
    }
    step(a + p, lda, b + p * ldb, ldb);
  }
  if (tail.size > 0) {
    alignas(64) bf16_t pairs[kInner * 2 * kSide] = {};
    const auto bytes = static_cast<size_t>((shape.columns[0] + shape.columns[1]) * kFloatBytes);
    for (int64_t i = 0; i < tail.size; i += 2) std::memcpy(pairs + i * 2 * kSide, b + (p + i) * ldb, bytes);
    AmxTiles::written_for_tiles();
    step(tail.left, kInner, pairs, 2 * kSide);
  }
  _tile_stored(0, c, row);
  if (kTwoColumns) _tile_stored(1, right, row);
  if (kTwoRows) _tile_stored(2, below, row);
  if (kTwoRows && kTwoColumns) _tile_stored(3, across, row);
}

// The products of 16 rows, which stay in registers, with all columns, one accumulator after the other. A
// store waits for its products, and what is issued behind it waits too: it is issued among the products of a
// later accumulator. Sums are added in the same order as above.
template <int kSteps>
void multiply_rows(const bf16_t* a, int64_t lda, const bf16_t* b, int64_t ldb, float* c, int64_t ldc,
                   int64_t columns, bool accumulate) {
  using Tiles = AmxTiles;
  constexpr int kFirst = 6 - kSteps;          // register of the rows
  constexpr int kSums = kSteps <= 2 ? 4 : 2;  // registers of sums
  constexpr int kLate = kSums / 2;            // accumulators between a product and its store
  static_assert(kSteps >= 1 && kSteps <= 4);
  const int64_t row = ldc * kFloatBytes, pairs = ldb * kFloatBytes;
  Tiles::load_tile<kFirst>(a, lda * 2);
  if constexpr (kSteps > 1) Tiles::load_tile<kFirst + 1>(a + kInner, lda * 2);
  if constexpr (kSteps > 2) Tiles::load_tile<kFirst + 2>(a + 2 * kInner, lda * 2);
  if constexpr (kSteps > 3) Tiles::load_tile<kFirst + 3>(a + 3 * kInner, lda * 2);
  const auto column = [&](auto number, int64_t j) {
    constexpr int kSum = decltype(number)::value;
    const bool needed = j < columns;
    const bf16_t* const right = b + 2 * j;
    if (needed) {
      if (accumulate) {
        Tiles::load_tile<kSum>(c + j, row);
      } else {
        Tiles::zero_tile<kSum>();
      }
      Tiles::load_tile<6>(right, pairs);
      Tiles::multiply<kSum, kFirst, 6>();
    }
    const int64_t before = j - kLate * kSide;
    if (before >= 0 && before < columns) Tiles::store_tile<(kSum + kSums - kLate) % kSums>(c + before, row);
    if (!needed) return;
    if constexpr (kSteps > 1) {
      Tiles::load_tile<7>(right + kInner * ldb, pairs);
      Tiles::multiply<kSum, kFirst + 1, 7>();
    }
    if constexpr (kSteps > 2) {
      Tiles::load_tile<6>(right + 2 * kInner * ldb, pairs);
      Tiles::multiply<kSum, kFirst + 2, 6>();
    }
    if constexpr (kSteps > 3) {
      Tiles::load_tile<7>(right + 3 * kInner * ldb, pairs);
      Tiles::multiply<kSum, kFirst + 3, 7>();
    }
  };
  for (int64_t j = 0; j < columns + kLate * kSide; j += kSums * kSide) {
    column(Tiles::Number<0>{}, j);
    column(Tiles::Number<1>{}, j + kSide);
    if constexpr (kSums == 4) {
      column(Tiles::Number<2>{}, j + 2 * kSide);
      column(Tiles::Number<3>{}, j + 3 * kSide);
    }
  }
}

int64_t least(int64_t x, int64_t y) {
  return x < y ? x : y;
}

template <bool kFetch>
decltype(&multiply<true, true, kFetch>) product_of(const Shape& shape) {
  if (shape.rows[1] > 0)
    return shape.columns[1] > 0 ? multiply<true, true, kFetch> : multiply<true, false, kFetch>;
  return shape.columns[1] > 0 ? multiply<false, true, kFetch> : multiply<false, false, kFetch>;
}

template <bool kFetch>
void multiply_blocks(const Matrix<const bf16_t>& lhs, const Rhs<const bf16_t>& rhs, const Matrix<float>& out,
                     bool accumulate) {
  const bf16_t *a = lhs.data, *b = rhs.data;
  float* c = out.data;
  const int64_t m = out.rows, n = out.cols, k = lhs.cols, lda = lhs.stride, ldb = rhs.stride,
                ldc = out.stride;
  alignas(64) bf16_t left[2 * kSide * kInner];
  Tail tail{k % kInner, left};
  for (int64_t i = 0; i < m; i += 2 * kSide, a += 2 * kSide * lda, c += 2 * kSide * ldc) {
    const int64_t rows = least(m - i, 2 * kSide);
    if (tail.size > 0) {
      std::memset(left, 0, sizeof(left));
      for (int64_t r = 0; r < rows; ++r) {
        std::memcpy(left + r * kInner, a + r * lda + k - tail.size,
                    static_cast<size_t>(tail.size) * sizeof(bf16_t));
      }
    }
    for (int64_t j = 0; j < n; j += 2 * kSide) {
      const int64_t columns = least(n - j, 2 * kSide);
      Shape shape;
      shape.rows[0] = least(rows, kSide);
      shape.rows[1] = rows - shape.rows[0];
      shape.columns[0] = least(columns, kSide);
      shape.columns[1] = columns - shape.columns[0];
      configure(shape);
      const auto product = product_of<kFetch>(shape);
      product(shape, k, a, lda, b + 2 * j, ldb, c + j, ldc, accumulate, tail);
    }
  }
}

}  // namespace

void amx_multiply(const Matrix<const bf16_t>& lhs, const Rhs<const bf16_t>& rhs, const Matrix<float>& out,
                  bool accumulate) {
  if (out.rows % kSide != 0 || out.cols % kSide != 0 || lhs.cols % kInner != 0 || lhs.cols == 0 ||
      lhs.cols > 4 * kInner)
    return multiply_blocks<false>(lhs, rhs, out, accumulate);
  amx_begin();
  constexpr decltype(&multiply_rows<1>) kBySteps[] = {multiply_rows<1>, multiply_rows<2>, multiply_rows<3>,
                                                      multiply_rows<4>};
  const auto rows = kBySteps[lhs.cols / kInner - 1];
  AmxTiles::written_for_tiles();
  for (int64_t i = 0; i < out.rows; i += kSide)
    rows(lhs.row(i), lhs.stride, rhs.data, rhs.stride, out.row(i), out.stride, out.cols, accumulate);
  AmxTiles::written_for_tiles();
}

void amx_multiply_few_rows(const Matrix<const bf16_t>& weight, const Rhs<const bf16_t>& x,
                           const Matrix<float>& out) {
  multiply_blocks<true>(weight, x, out, /*accumulate=*/false);
}

void amx_begin() {
  configure({.rows = {kSide, kSide}, .columns = {kSide, kSide}});
}

void amx_done() {
  if (configured == Shape{}) return;
  _tile_release();
  configured = {};
}

}  // namespace attentive::kernels::cpu

#elif defined(__x86_64__) && defined(__linux__)
#error "compile this unit with -mamx-tile -mamx-bf16: cpu_features.cpp counts on it"
#else

namespace attentive::kernels::cpu {

void amx_multiply(const Matrix<const bf16_t>&, const Rhs<const bf16_t>&, const Matrix<float>&, bool) {}
void amx_multiply_few_rows(const Matrix<const bf16_t>&, const Rhs<const bf16_t>&, const Matrix<float>&) {}
void amx_begin() {}
void amx_done() {}

}  // namespace attentive::kernels::cpu

#endif
