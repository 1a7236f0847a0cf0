#pragma once

// Converts raw scores to logits and decides which columns are visible and which survive dropout, for the
// softmax and its gradient.

#include <attentive/score/vectors/math.h>

#include "kernels/attention/rows.h"
#include "kernels/simd/half_types.h"

ATTENTIVE_SIMD_BEGIN

/// Converts raw scores to natural logits. Every step is rounded, because the backward pass subtracts the
/// maximum of the forward pass, so both passes must compute the same bits. `capped` receives tanh(x /
/// softcap) for the backward pass.
template <class Bias>
inline Vec logits(const ScoreRule& rule, Vec raw, Vec distance, const Bias* bias, int64_t n, Vec* capped) {
  Vec x = product(raw, rule.scale);
  if (rule.softcap != 0.0f) {
    const float most = 3.0e38f, inverse = 1.0f / rule.softcap;
    const Vec t = tanh(x * (inverse < most ? inverse : most));
    if (capped) *capped = t;
    x = product(t, rule.softcap);
  }
  if (bias) x = x + load_part(bias, n);
  if (rule.slope != 0.0f) x = x - product(magnitude(distance), rule.slope);
  return x;
}

/// The terms that may hide some columns of a vector: none, the bias alone, or any.
enum class Hides { Nothing, Bias, Anything };

/// Which columns of a vector a bias leaves visible.
inline Int shown_by(Vec bias) {
  return bias != all(kMinusInfinity);
}

/// Visibility of one vector of columns of a SoftmaxRow or GradientRow, starting at column c.
template <class Row>
inline Int visible(const Row& row, int64_t c) {
  const Int at = lanes() + static_cast<int32_t>(c);
  const int64_t n = row.hi - c;
  Int result = (at >= static_cast<int32_t>(row.lo)) & (at < static_cast<int32_t>(row.hi));
  if (row.bias) result &= shown_by(load_part(row.bias + c, n, kMinusInfinity));
  if constexpr (requires { row.bias16; }) {
    if (row.bias16) result &= shown_by(load_part(row.bias16 + c, n));
  }
  if (row.keep) {
    Byte bytes = {};
    if (n >= kWidth) {
      bytes = load<Byte>(row.keep + c);
    } else {
      std::memcpy(&bytes, row.keep + c, static_cast<size_t>(n));
    }
    result &= __builtin_convertvector(bytes, Int) != 0;
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
