#pragma once

// Attention in units of 16 queries by 64 keys, for a matrix unit that multiplies bfloat16 (AMX): the products
// of one unit are issued among the vector code of another. The code of a unit is written over a small set of
// operations (unit_operations_amx.h), which unit_operations_portable.h defines again for every other machine,
// with the same bits. Functions here are always inlined, as in matrix.h.

#include "kernels/simd/matrix.h"

namespace attentive::kernels::cpu {

constexpr int64_t kUnitRows = 16;  // queries
constexpr int64_t kUnitKeys = 64;

/// A weight is 2^(t - reference - kHeadroom), where t is its logit in base 2. The reference of a row is the
/// largest t of the first keys that it sees, rounded to a multiple of 1/512, by which that weight is exact. A
/// later t may exceed it by kHeadroom; weights down to 2^-126 are kept.
constexpr int kHeadroom = 40;

/// The most keys and queries of a tile of the backward pass.
constexpr int64_t kMostOfTile = 128;

/// The key of a word of packed weights, of which vpackusdw takes four from the first 16 keys, four from the
/// second, and so on. Values are packed in that order.
constexpr int key_of_word(int word) {
  return word / 8 * 4 + word % 4 + (word % 8 >= 4 ? 16 : 0);
}

/// Scales within these limits leave every intermediate number finite.
constexpr float kLargestScale = 0x1p40f, kSmallestScale = 0x1p-40f;

/// The state of 16 queries.
struct alignas(64) UnitRows {
  float totals[kUnitRows][16];  ///< the total of a row's weights is the sum of these
  float reference[kUnitRows];
  float shift[kUnitRows];  ///< the reference and the headroom as weights_of (unit_code.h) adds them
  uint32_t begun;          ///< one bit per row: it has seen a key
  uint32_t unfit;          ///< one bit per row: units cannot compute it
};

/// 16 queries and 64 keys.
struct Unit {
  const bf16_t *queries, *keys, *values;  ///< packed; `queries` is (16, D)
  float* sums;                            ///< O, (16, D)
  UnitRows* rows;
  int32_t parts;  ///< 16 keys each, from the first on, that some row may see; 0: there is nothing to compute
  bool begins;    ///< nothing has been added to `sums` yet
  bool edge;      ///< some key is hidden from a row
  /// Edges: row r may see the keys from lo + r, or 0, to hi + r, or `end`.
  int32_t lo, hi, end;
  /// Edges: for each row, one bit per key, which is 0 if the key is hidden. May be null.
  const uint64_t* shown;
  /// Bits of 16 keys each, four per row, of the weights that survive dropout; rows are `stride` apart. May be
  /// null.
  const uint16_t* survivors;
  int64_t stride;
};

/// Memory between the steps of one thread's units.
struct alignas(64) UnitMemory {
  float scores[2][kUnitRows * kUnitKeys];
  bf16_t weights[2][kUnitRows * kUnitKeys];
  float* late[2];  ///< sums that the last step has not stored; null: none
};

/// Keys and values, and the memory for their packed copies: of D and Dv numbers a key, up to a multiple of 64
/// keys, of which those beyond the last are 0.
struct UnitKeys {
  Matrix<const bf16_t> k, v;
  bf16_t *keys, *values;
  uint8_t* fit;  ///< whether units may multiply a key and its value; the copies of others are 0
};

/// A row of a transposed tile of the backward pass: which of its queries see the key.
struct UnitGradientRow {
  int32_t lo, hi;
  const uint16_t* drop;  ///< one number per query; null: nothing is dropped
  int drop_bit;          ///< the key's bit of them, which is set if the weight survives
};

/// A transposed tile of the backward pass; lanes run over queries. Rows hold 16 numbers more than `columns`.
struct UnitGradients {
  int64_t keys, columns;
  const UnitGradientRow* rows;
  Matrix<const float> scores, products;  ///< Sᵀ and dPᵀ
  /// One number per query: the weight is 2^((score - maximum) * unit - log_total).
  const float *maximum, *log_total, *delta;
  float unit, scale, survivor_scale;
  Matrix<bf16_t> weights, gradients;  ///< out: Pᵀ after dropout, and dSᵀ
  Rhs<bf16_t> pairs;                  ///< out: dSᵀ once more
};
/// Up to here, the logarithm to base 2 of a row's total may be.
constexpr float kMostLogTotal = 4096.0f;

struct UnitSteps {
  /// Computes the scores of `next`, the weights of `now` and the sums of `before`; scores and weights are in
  /// the halves of the memory that `turn` says. `scale` is the factor from scores to logits in base 2.
  void (*step)(const Unit& next, const Unit& now, const Unit& before, UnitMemory&, int turn, float scale);
  /// Completes the sums after the last step.
  void (*flush)(UnitMemory&);
};

/// The code of units, over the operations of one machine.
struct UnitFunctions {
  /// Packs keys and values, and returns whether units may multiply all of them.
  bool (*pack)(const UnitKeys&);
  /// Packs whether bytes are not 0 into bits, of up to 64.
  uint64_t (*bits)(const uint8_t* bytes, int64_t count);
  /// Starts rows: copies up to 16 queries to 16 * D numbers, with zeros for those that are missing. Those
  /// that units cannot multiply are unfit.
  void (*start_rows)(const Matrix<const bf16_t>& queries, bf16_t* to, UnitRows&);
  UnitSteps of_64, of_128;  ///< of D and Dv of this size
  void (*gradients)(const UnitGradients&);
  /// The total of each row's weights and, of those that have begun, its inverse. Returns one bit per row:
  /// whether its total is below 1.
  uint32_t (*totals)(const UnitRows&, float* to, float* inverse);
  /// Writes rows of O: sums (rows, width) times `factors`, rounded.
  void (*write)(const float* sums, const float* factors, int64_t rows, int64_t width, bf16_t* to,
                int64_t stride);
  void (*begin)();  ///< before the first step of a thread, and
  void (*end)();    ///< after its last
};

}  // namespace attentive::kernels::cpu
