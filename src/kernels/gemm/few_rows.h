// Part of simd_impl.h, inside its namespace: x W^T of a few rows. The weight comes from memory, and every
// number of it is fetched once.
#pragma once

// The most rows of a block, and its weights: their sums, the weights' vectors and one of x fill the registers.
constexpr int kLinearRows = ATTENTIVE_SIMD_IS_AVX512 ? 4 : 3;
constexpr int kLinearOutputs = 4;

// What a block of the product reads and writes: some features of x (rows, ld) and of the weight (outputs, ld).
struct LinearBlock {
  const float* x;
  const void* weight;
  int64_t ld, features;
  int64_t outputs;  // as many weights exist
  int64_t ahead;    // the distance, in numbers, of the weights to be fetched meanwhile
  float* out;
  int64_t ldo;
  bool accumulate;
};

// kRows rows by kLinearOutputs weights. Of the weights ahead, group `group` of `groups` fetches its share.
template <int kRows, bool kBf16>
void linear_block(const LinearBlock& b, int64_t group, int64_t groups) {
  constexpr int kBytes = kBf16 ? 2 : 4;
  constexpr int kTotals = (ATTENTIVE_SIMD_IS_AVX512 ? kLinearRows : kRows) * kLinearOutputs;
  Vec total[kTotals];
#pragma GCC unroll 16
  for (auto& t : total) t = Vec{};
  int64_t at[kLinearOutputs];  // a missing weight repeats the first
  for (int j = 0; j < kLinearOutputs; ++j) at[j] = j < b.outputs ? j * b.ld : 0;
  const auto step = [&](int64_t i, int64_t n) __attribute__((always_inline)) {
    Vec weight[kLinearOutputs];
#pragma GCC unroll 4
    for (int j = 0; j < kLinearOutputs; ++j) weight[j] = load_value<kBf16>(b.weight, at[j] + i, n);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const Vec x = load_part(b.x + r * b.ld + i, n);
#pragma GCC unroll 4
      for (int j = 0; j < kLinearOutputs; ++j) total[r * kLinearOutputs + j] += x * weight[j];
    }
  };
  const auto* next = static_cast<const char*>(b.weight) + b.ahead * kBytes;
  int64_t i = 0;
  for (; i + kLine<kBf16> <= b.features; i += kLine<kBf16>) {
    for (int64_t j = group; j < kLinearOutputs; j += groups)
      __builtin_prefetch(next + (j * b.ld + i) * kBytes, 0, 2);
    for (int64_t part = 0; part < kLine<kBf16>; part += kWidth) step(i + part, kWidth);
  }
  for (; i < b.features; i += kWidth) step(i, b.features - i);
  float results[kTotals];
  sums(total, results);
  for (int r = 0; r < kRows; ++r) {
    float* const out = b.out + r * b.ldo;
    for (int j = 0; j < kLinearOutputs && j < b.outputs; ++j)
      out[j] = results[r * kLinearOutputs + j] + (b.accumulate ? out[j] : 0.0f);
  }
}

template <bool kBf16, int... kRows>
void few_products_of(Sequence<kRows...>, const float* x, int64_t rows, const void* weight, int64_t outputs,
                     int64_t features, float* out, int64_t ld) {
  using Block = decltype(&linear_block<1, kBf16>);
  static constexpr Block blocks[] = {linear_block<kRows + 1, kBf16>...};
  constexpr int64_t kNumbers = 6144;  // of x, 24 KiB: they stay in the first cache while all weights pass
  constexpr int64_t kAhead = 8192;    // bytes
  const int64_t groups = (rows + kLinearRows - 1) / kLinearRows;
  const int64_t parts = (features * rows + kNumbers - 1) / kNumbers;
  const int64_t part = ((features + parts - 1) / parts + 63) / 64 * 64;
  const int64_t block_bytes = kLinearOutputs * part * (kBf16 ? 2 : 4);
  const int64_t ahead = (kAhead + block_bytes - 1) / block_bytes * kLinearOutputs * features;
  for (int64_t i = 0; i < features; i += part) {
    const int64_t n = features - i < part ? features - i : part;
    for (int64_t j = 0; j < outputs; j += kLinearOutputs) {
      const void* const at = static_cast<const char*>(weight) + (j * features + i) * (kBf16 ? 2 : 4);
      for (int64_t group = 0; group < groups; ++group) {
        const int64_t r = rows * group / groups, end = rows * (group + 1) / groups;
        const LinearBlock block{x + r * features + i, at, features, n, outputs - j, ahead,
                                out + r * ld + j,     ld, i > 0};
        blocks[end - r - 1](block, group, groups);
      }
    }
  }
}

void few_products(const float* x, int64_t rows, const void* weight, bool is_bf16, int64_t outputs,
                  int64_t features, float* out, int64_t ld) {
  using Rows = Count<kLinearRows>::Type;
  is_bf16 ? few_products_of<true>(Rows{}, x, rows, weight, outputs, features, out, ld)
          : few_products_of<false>(Rows{}, x, rows, weight, outputs, features, out, ld);
}
