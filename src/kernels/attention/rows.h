#pragma once

// Vector code for the rows of a tile, and the description of such a row.

#include "kernels/simd/matrix.h"
#include "kernels/simd/vector_code.h"
#include "kernels/terms.h"

namespace attentive::kernels::cpu {

/// One row (a query) of a tile of scores. Columns [lo, hi) are visible by position; the scores of the others
/// are not read, and their weights are 0. `scores` and `weights16` are padded to whole vectors (16 numbers).
struct SoftmaxRow {
  ATTENTIVE_ALWAYS_INLINE bool has_bias() const { return bias || bias16; }

  float* scores;                ///< in: raw scores; out: weights in place, if `weights16` is null
  bf16_t* weights16 = nullptr;  ///< out: weights as bf16
  int64_t cols = 0;             ///< columns to write
  int64_t lo = 0, hi = 0;
  ScoreRule rule = {};
  const float* bias = nullptr;     ///< -inf hides
  const bf16_t* bias16 = nullptr;  ///< in its place, for a softmax
  float distance = 0.0f;           ///< ALiBi: distance of the query's aligned key to column 0
  const uint8_t* keep = nullptr;   ///< 0 hides
  const uint16_t* drop = nullptr;  ///< one bit per column (set: survives), 16 columns per element
  float maximum = 0.0f;  ///< in and out: running maximum in ScoreRule's units; -inf before the first key
  float sum = 0.0f;      ///< in and out: running sum
  float rescale = 1.0f;  ///< out: factor for everything accumulated before
  float peak = 0.0f;     ///< largest score of this tile, for the second pass
  bool prepared =
      false;  ///< whether `peak` is known, and hidden columns of the vectors of [lo, hi) hold -inf
};

/// One row (a key) of a transposed tile in the backward pass; lanes run over queries.
struct GradientRow {
  float* scores;    ///< in: raw scores; out: weights after dropout, times 1 / (1 - p), if `weights16` is null
  float* products;  ///< in: dO · v; out: gradient of q·k, if `gradients16` is null
  bf16_t* weights16 = nullptr;    ///< out: the weights as bf16
  bf16_t* gradients16 = nullptr;  ///< out: the gradient as bf16
  int64_t cols = 0;               ///< a multiple of 16; rows are padded to it
  int64_t lo = 0, hi = 0;         ///< queries that see this key by position
  ScoreRule rule = {};
  const float* bias = nullptr;
  float distance = 0.0f;  ///< ALiBi: position of column 0's query minus this key
  const uint8_t* keep = nullptr;
  const uint16_t* drop = nullptr;  ///< per query, the group of 16 keys that holds this one
  int drop_bit = 0;
  float survivor_scale = 1.0f;
  /// The next three have one number per query. A weight is 2^((score - maximum) * to_base_2 - log_total).
  const float* maximum = nullptr;    ///< as in SoftmaxRow
  const float* log_total = nullptr;  ///< base 2; +inf for a query without keys
  const float* delta = nullptr;
  const float* slopes = nullptr;        ///< derivatives of the scores by q·k; null: the rule's
  bool normalised = true;               ///< false: the scores are the weights, without statistics
  float* logits = nullptr;              ///< out: gradient of the logits; null: not wanted
  const float* grad_weights = nullptr;  ///< incoming gradient of the weights; null: none
  bool of_dropped = false;              ///< whether grad_weights is that of the weights after dropout
};

/// One row (a query) of a tile of the backward pass, whose weights are known.
struct StoredWeightsRow {
  const SoftmaxRow* terms = nullptr;  ///< columns, what hides and drops them, and the rule, which is a scale
  const float* weights = nullptr;     ///< before dropout; columns [lo, hi) are read
  const float* grad_weights = nullptr;  ///< their incoming gradient; likewise
  float* products = nullptr;            ///< in: dO · v; out: gradient of q·k
  float* dropped = nullptr;             ///< out: weights after dropout, times 1 / (1 - p)
  float* logits = nullptr;              ///< out: gradient of the logits; null: not wanted
  float survivor_scale = 1.0f;
  bool normalised = true;  ///< false: weights are scores, and logits are weights
  float delta = 0.0f;      ///< in: what is added to δ; out: δ
};

/// Sums over the gradients of a row of logits: their sum, and that of their products with the magnitudes of
/// their distances.
struct LogitSums {
  float total, by_distance;
};

/// The type of a product of few rows with many of another type.
template <class T>
using OfFewRows = void(const Matrix<const float>& few, const Matrix<const T>& many, const Matrix<float>& out);

struct RowFunctions {
  /// Takes scale and cap of the scores of columns [lo, hi), padded to whole vectors. `slopes` receives
  /// the derivatives by the raw scores; it may be null.
  void (*cap)(float* scores, float* slopes, const ScoreRule& rule, int64_t lo, int64_t hi);
  /// Turns rows of scores into weights without a softmax: only hidden and dropped ones become 0. The
  /// statistics become those of a row whose weights need no factor.
  void (*plain_rows)(SoftmaxRow* rows, int64_t count);
  /// Makes two passes over all rows, so that the CPU can start on the next row while it waits for a row's
  /// maximum.
  void (*softmax_rows)(SoftmaxRow* rows, int64_t count);
  void (*gradient_row)(const GradientRow&);
  void (*stored_weights_row)(StoredWeightsRow&);
  /// Sums of `count` gradients of logits; `distance` is that of the first.
  LogitSums (*logit_sums)(const float* gradients, float distance, int64_t count);
  /// Adds the gradients of a row of logits to `totals`, and their products with the magnitudes of the
  /// distances distance, distance - 1, ... to `by_distance`. Either may be null.
  void (*add_logits)(const float* gradients, float distance, float* totals, float* by_distance,
                     int64_t count);

  /// scores = q * k^T for few queries and many keys.
  Overloaded<OfFewRows<float>, OfFewRows<bf16_t>, OfFewRows<f16_t>> few_scores;
  /// out += weights * v for few rows of weights.
  Overloaded<OfFewRows<float>, OfFewRows<bf16_t>, OfFewRows<f16_t>> few_outputs;
};

inline const RowFunctions& rows_code() {
  return *vector_code().rows;
}

}  // namespace attentive::kernels::cpu
