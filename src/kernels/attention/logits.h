#pragma once

// Converts raw scores to logits and decides which columns are visible and which survive dropout, for the
// softmax and its gradient.

#include <attentive/score/vectors/math.h>

#include "kernels/attention/rows.h"
#include "kernels/simd/half_types.h"

ATTENTIVE_SIMD_BEGIN

/// The mathematics of the terms (terms.h) for vectors.
struct VectorMath {
  static Vec product(Vec a, float b) { return ATTENTIVE_SIMD_NAMESPACE::product(a, b); }
  static Vec quotient(Vec x, float by) {
    const float most = 3.0e38f, inverse = 1.0f / by;
    return x * (inverse < most ? inverse : most);
  }
  static Vec tanh(Vec x) { return ATTENTIVE_SIMD_NAMESPACE::tanh(x); }
  static Vec magnitude(Vec x) { return ATTENTIVE_SIMD_NAMESPACE::magnitude(x); }
};

/// Converts raw scores to natural logits. `tanh` receives that of the cap; it may be null.
template <class Bias>
inline Vec logits(const ScoreRule& rule, Vec raw, Vec distance, const Bias* bias, int64_t n, Vec* tanh) {
  Vec unread = all(0.0f);
  return rule.logit<VectorMath>(
      raw, distance, bias != nullptr, [=] { return load_part(bias, n); }, tanh ? *tanh : unread);
}

/// The columns of a long row that are summed at a time.
constexpr int64_t kSummedColumns = 1024;

/// The terms that may hide some columns of a vector: none, the bias alone, or any.
enum class Hides { Nothing, Bias, Anything };

/// Visibility of one vector of columns of a SoftmaxRow or GradientRow, starting at column c.
template <class Row>
inline Int visible(const Row& row, int64_t c) {
  const Int offset = lanes() + static_cast<int32_t>(c);
  const int64_t n = row.hi - c;
  Int result = MaskTerm::in_range(offset, static_cast<int32_t>(row.lo), static_cast<int32_t>(row.hi));
  if (row.bias) result &= BiasTerm::shows(load_part(row.bias + c, n, kMinusInfinity));
  if constexpr (requires { row.bias16; }) {
    if (row.bias16) result &= BiasTerm::shows(load_part(row.bias16 + c, n));
  }
  if (row.keep) {
    Byte bytes = {};
    if (n >= kWidth) {
      bytes = load<Byte>(row.keep + c);
    } else {
      std::memcpy(&bytes, row.keep + c, static_cast<size_t>(n));
    }
    result &= MaskTerm::shows(__builtin_convertvector(bytes, Int));
  }
  return result;
}

/// The weights of a vector of columns that begins at `column`, without what dropout removes.
template <bool kDrop>
inline Vec surviving([[maybe_unused]] const uint16_t* drop, int64_t column, Vec weights) {
  if constexpr (kDrop) return where_bits(static_cast<uint32_t>(drop[column / 16]) >> (column % 16), weights);
  return weights;
}

ATTENTIVE_SIMD_END
