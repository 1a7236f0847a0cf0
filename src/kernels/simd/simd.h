#pragma once

// The vector code of the native kernel as a table of functions, compiled once per instruction set and chosen
// at run time. Plain pointers and numbers only: nothing here may pull inline code of another header into a
// unit that is compiled for a wider instruction set than the program may run on.

#include <cstdint>

namespace attentive::kernels::cpu {

using bf16_t = uint16_t;  // the upper half of a float

// What happens to a row of raw scores q·k before the exponential.
struct ScoreRule {
  float scale = 1.0f;
  float softcap = 0.0f;  // 0: none
  float slope = 0.0f;    // ALiBi
  // Nothing but a positive scale.
  bool plain() const { return softcap == 0.0f && slope == 0.0f && scale > 0.0f; }
  // A row's scores and their maximum are kept as q·k if the rule is plain and there is no bias, else as
  // natural logits. Natural, because a bias or a slope near the largest number has no base-2 logit.
  float to_natural(bool has_bias) const { return plain() && !has_bias ? scale : 1.0f; }
  float to_base_2(bool has_bias) const { return to_natural(has_bias) * 1.44269504088896340736f; }
};

// One row (a query) of a tile of scores. Columns [lo, hi) are visible by position; the others get weight 0
// unread. `scores` and `weights16` have room for whole vectors (16 numbers).
struct SoftmaxRow {
  float* scores;                // in: raw scores; out: weights in place, if `weights16` is null
  bf16_t* weights16 = nullptr;  // out: weights as bf16
  int64_t cols = 0;             // columns to write
  int64_t lo = 0, hi = 0;
  ScoreRule rule = {};
  const float* bias = nullptr;     // -inf hides
  float distance = 0.0f;           // ALiBi: distance of the query's aligned key to column 0
  const uint8_t* keep = nullptr;   // 0 hides
  const uint16_t* drop = nullptr;  // one bit per column (set: survives), 16 columns per element
  int64_t drop_stride = 0;         // elements between groups of 16 columns
  float maximum = 0.0f;  // in and out: running maximum, as ScoreRule keeps scores; -inf before the first key
  float sum = 0.0f;      // in and out: running sum
  float rescale = 1.0f;  // out: factor of everything accumulated before
  float peak = 0.0f;     // largest of this tile, for the second pass
};

// One row (a key) of a transposed tile in the backward pass; lanes run over queries.
struct GradientRow {
  float* scores;    // in: raw scores; out: weights after dropout, times 1 / (1 - p), if `weights16` is null
  float* products;  // in: dO · v; out: gradient of q·k, if `gradients16` is null
  bf16_t* weights16 = nullptr;  // out: the same as bf16
  bf16_t* gradients16 = nullptr;
  int64_t cols = 0;        // a multiple of 16, as the rows are
  int64_t lo = 0, hi = 0;  // queries that see this key by position
  ScoreRule rule = {};
  const float* bias = nullptr;
  float distance = 0.0f;  // ALiBi: aligned key of column 0's query minus this key
  const uint8_t* keep = nullptr;
  const uint16_t* drop = nullptr;  // per query, the group of 16 keys that holds this one
  int drop_bit = 0;
  float survivor_scale = 1.0f;
  // Per query. A weight is 2^(score - maximum - log_total), the difference in base 2.
  const float* maximum = nullptr;    // as in SoftmaxRow
  const float* log_total = nullptr;  // base 2; +inf for a query without keys
  const float* delta = nullptr;
};

// What a product under a causal mask may leave out. Of its first row, columns from `columns` on are not wanted
// and may stay unwritten, and the left side is zero from `inner` on; each further row has one more.
struct Reach {
  static constexpr int64_t kAll = int64_t{1} << 62;
  int64_t columns = kAll, inner = kAll;
};

struct Simd {
  const char* name;
  int width;  // floats of a vector

  // Two passes over all rows, so that the next row's work begins while one waits for its maximum.
  void (*softmax_rows)(SoftmaxRow* rows, int64_t count);
  void (*gradient_row)(const GradientRow&);

  // dst[c * ldd + r] = src[r * lds + c]
  void (*transpose)(const float* src, int64_t lds, float* dst, int64_t ldd, int64_t rows, int64_t cols);
  void (*transpose_to_bf16)(const float* src, int64_t lds, bf16_t* dst, int64_t ldd, int64_t rows,
                            int64_t cols);
  void (*transpose_from_bf16)(const bf16_t* src, int64_t lds, float* dst, int64_t ldd, int64_t rows,
                              int64_t cols);
  void (*to_bf16)(const float* src, bf16_t* dst, int64_t n);
  void (*from_bf16)(const bf16_t* src, float* dst, int64_t n);
  // Pairs of rows interleaved, as bf16 products want their right side: dst[(r / 2) * ldd * 2 + c * 2 + r % 2]
  // = src[r * lds + c]; a missing last row is zero. Says whether every number is finite.
  bool (*pack_pairs)(const bf16_t* src, int64_t lds, bf16_t* dst, int64_t ldd, int64_t rows, int64_t cols);
  // The same of the transposed source: dst[(c / 2) * ldd * 2 + r * 2 + c % 2] = src[r * lds + c].
  void (*pack_pairs_transposed)(const bf16_t* src, int64_t lds, bf16_t* dst, int64_t ldd, int64_t rows,
                                int64_t cols);

  // dst[r * ldd + c] = src[r * lds + c]; says whether every number is finite.
  bool (*copy_rows)(const float* src, int64_t lds, float* dst, int64_t ldd, int64_t rows, int64_t cols);
  bool (*copy_rows_from_bf16)(const bf16_t* src, int64_t lds, float* dst, int64_t ldd, int64_t rows,
                              int64_t cols);

  void (*scale)(float* x, float factor, int64_t n);
  void (*store_scaled)(const float* x, float factor, float* out, int64_t n);
  void (*store_scaled16)(const float* x, float factor, bf16_t* out, int64_t n);
  void (*add)(const float* x, float* to, int64_t n);
  float (*dot)(const float* a, const float* b, int64_t n);
  float (*dot16)(const bf16_t* a, const bf16_t* b, int64_t n);
  // Of a block of rows, `ld` apart.
  bool (*all_finite)(const float* x, int64_t ld, int64_t rows, int64_t n);
  bool (*all_finite16)(const bf16_t* x, int64_t ld, int64_t rows, int64_t n);

  // Dropout bits of one row for 128 columns: out[g * stride] holds columns 16 g … 16 g + 15 of block `block`.
  void (*dropout_bits)(uint64_t key, uint32_t threshold, uint32_t b, uint32_t h, uint32_t i, uint32_t block,
                       uint16_t* out, int64_t stride);

  // Few queries over many keys. scores[r * ld + j] = q[r * dim + …] · k[j * ldk + …]
  void (*few_scores)(const float* q, int64_t rows, const void* k, bool is_bf16, int64_t ldk, int64_t keys,
                     int64_t dim, float* scores, int64_t ld);
  // out[r * dim + …] += weights[r * ld + j] * v[j * ldv + …]
  void (*few_outputs)(const float* weights, int64_t ld, int64_t rows, const void* v, bool is_bf16,
                      int64_t ldv, int64_t keys, int64_t dim, float* out);
  // A few rows times a weight (outputs, features) that comes from memory:
  // out[r * ld + j] = x[r * features + …] · weight[j * features + …]
  void (*few_products)(const float* x, int64_t rows, const void* weight, bool is_bf16, int64_t outputs,
                       int64_t features, float* out, int64_t ld);

  // GELU (tanh form) and the gradient of its argument.
  void (*gelu)(const float* x, float* y, int64_t n);
  void (*gelu_gradient)(const float* x, const float* dy, float* dx, int64_t n);

  // Products of small matrices, as in gemm.h; the last is null without an instruction for it.
  void (*gemm)(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb,
               float* c, int64_t ldc, bool accumulate);
  void (*gemm_causal)(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b,
                      int64_t ldb, float* c, int64_t ldc, bool accumulate, Reach reach);
  void (*gemm16)(int64_t m, int64_t n, int64_t k, const bf16_t* a, int64_t lda, const bf16_t* b, int64_t ldb,
                 float* c, int64_t ldc, bool accumulate);
};

// The table of selection.h.
const Simd& simd();

// The tables themselves; null where the compiler or the platform has no such instruction set.
const Simd* simd_avx512_bf16();
const Simd* simd_avx512();
const Simd* simd_avx2();
const Simd* simd_portable();

}  // namespace attentive::kernels::cpu
