#pragma once

// Turns a row of scores into a row of weights.

#include "kernels/attention/logits.h"
#include "kernels/simd/half_types.h"

ATTENTIVE_SIMD_BEGIN

/// Sets hidden columns to -inf and returns the largest visible score, for a plain rule, which keeps raw
/// scores.
inline float prepare_plain(const SoftmaxRow& row, int64_t first) {
  Vec top = all(kMinusInfinity), other = top;
  const auto edge = [&](int64_t c) {
    const Vec x = select(visible(row, c), load<Vec>(row.scores + c), all(kMinusInfinity));
    store(row.scores + c, x);
    top = larger(x, top);
  };
  int64_t c = first;
  if (row.keep) {
    for (; c < row.hi; c += kWidth) edge(c);
    return largest(top);
  }
  if (c < row.lo) {
    edge(c);
    c += kWidth;
  }
  for (; c + 2 * kWidth <= row.hi; c += 2 * kWidth) {
    top = larger(load<Vec>(row.scores + c), top);
    other = larger(load<Vec>(row.scores + c + kWidth), other);
  }
  for (; c + kWidth <= row.hi; c += kWidth) top = larger(load<Vec>(row.scores + c), top);
  if (c < row.hi) edge(c);
  return largest(larger(other, top));
}

template <bool kCap, bool kSlope, class Bias>
inline float prepare_rule(const SoftmaxRow& row, const Bias* bias, int64_t first) {
  const ScoreRule rule = row.rule.with(kCap, kSlope);
  float* const scores = row.scores;
  const int64_t lo = row.lo, hi = row.hi;
  const bool masked = row.keep != nullptr;
  Vec top = all(kMinusInfinity);
  Vec distance = row.distance - static_cast<float>(first) - lanes_as_floats();
  for (int64_t c = first; c < hi; c += kWidth, distance -= static_cast<float>(kWidth)) {
    Vec x = logits(rule, load<Vec>(scores + c), distance, bias ? bias + c : nullptr, hi - c, nullptr);
    if (masked || c < lo || c + kWidth > hi) {
      x = select(visible(row, c), x, all(kMinusInfinity));
    } else if (bias) {
      x = select(BiasTerm::shows(load_part(bias + c, kWidth)), x, all(kMinusInfinity));
    }
    store(scores + c, x);
    top = larger(x, top);
  }
  return largest(top);
}

template <class Bias>
inline float prepare_biased(const SoftmaxRow& row, const Bias* bias, int64_t first) {
  if (row.rule.caps()) {
    return row.rule.alibi ? prepare_rule<true, true>(row, bias, first)
                          : prepare_rule<true, false>(row, bias, first);
  }
  return row.rule.alibi ? prepare_rule<false, true>(row, bias, first)
                        : prepare_rule<false, false>(row, bias, first);
}

inline float prepare(const SoftmaxRow& row, int64_t first) {
  if (row.bias16) return prepare_biased(row, row.bias16, first);
  if (row.rule.plain() && !row.bias) return prepare_plain(row, first);
  return prepare_biased(row, row.bias, first);
}

template <bool kHalf>
inline void store_weight(const SoftmaxRow& row, int64_t column, Vec weight) {
  if constexpr (kHalf) {
    store(row.weights16 + column, narrow_fast(weight));
  } else {
    store(row.scores + column, weight);
  }
}

/// Stores the weights of two vectors of columns, the first of which begins at `column`.
template <bool kHalf>
inline void store_weights(float* scores, bf16_t* weights16, int64_t column, Vec first, Vec second) {
  if constexpr (kHalf) {
    store_narrow_pair(weights16 + column, first, second);
  } else {
    store(scores + column, first);
    store(scores + column + kWidth, second);
  }
}

/// Writes the weights of the columns [first, hi), rounded up to whole vectors, and returns their sum before
/// dropout.
template <bool kHalf, bool kDrop>
float to_weights(const SoftmaxRow& row, int64_t first, int64_t hi, float shift, float unit) {
  // Local copies stay in registers: the compiler must assume that the stores in the loop may change `row`.
  float* const scores = row.scores;
  bf16_t* const weights16 = row.weights16;
  const uint16_t* const drop = row.drop;
  const Vec shifts = all(shift), units = all(unit);
  Vec total = all(0.0f), other = total;
  const auto weight = [=](int64_t c) { return exp2<kHalf>((load<Vec>(scores + c) - shifts) * units); };
  const auto kept = [=](int64_t c, Vec w) { return surviving<kDrop>(drop, c, w); };
  int64_t c = first;
  for (; c + kWidth < hi; c += 2 * kWidth) {
    const Vec a = weight(c), b = weight(c + kWidth);
    total += a;
    other += b;
    store_weights<kHalf>(scores, weights16, c, kept(c, a), kept(c + kWidth, b));
  }
  if (c < hi) {
    const Vec a = weight(c);
    total += a;
    store_weight<kHalf>(row, c, kept(c, a));
  }
  return sum(total + other);
}

inline void zero_weights(const SoftmaxRow& row, int64_t from, int64_t to) {
  for (int64_t c = from; c < to; c += kWidth) {
    row.weights16 ? store_weight<true>(row, c, all(0.0f)) : store_weight<false>(row, c, all(0.0f));
  }
}

/// Prepares the scores for `to_weights` and returns the largest visible one, or -inf if there is none.
inline float peak_of(const SoftmaxRow& row) {
  if (row.hi <= row.lo) return kMinusInfinity;
  const float peak = row.prepared ? row.peak : prepare(row, row.lo / kWidth * kWidth);
  if (peak != kMinusInfinity) return peak;
  // The maximum ignores NaN, so a row whose visible scores are all NaN or -inf is searched for one.
  for (int64_t c = row.lo; c < row.hi; ++c) {
    if (row.scores[c] != row.scores[c]) return row.scores[c];
  }
  return peak;
}

inline void row_to_weights(SoftmaxRow& row) {
  row.rescale = 1.0f;
  if (row.peak == kMinusInfinity) return zero_weights(row, 0, row.cols);
  const int64_t first = row.lo / kWidth * kWidth;
  // A plain row is kept in units of q·k: the maximum is subtracted before scaling, so that the difference is
  // exactly 0 for the largest score, however large it is. (A fused raw * factor - maximum is not.)
  const float unit = row.rule.to_natural(row.has_bias()) * kLog2e;
  const float previous = row.maximum;
  if (!(previous > row.peak)) row.maximum = row.peak;
  if (row.sum == 0.0f) {
    row.rescale = 0.0f;
  } else if (previous != row.maximum) {
    row.rescale = exp2(all((previous - row.maximum) * unit))[0];
  }
  zero_weights(row, 0, first);
  const auto part_to_weights = row.weights16
                                   ? (row.drop ? to_weights<true, true> : to_weights<true, false>)
                                   : (row.drop ? to_weights<false, true> : to_weights<false, false>);
  row.sum *= row.rescale;
  // Parts of a long row are summed separately, so that rounding errors grow with their size and number rather
  // than with the length of the row.
  for (int64_t c = first; c < row.hi; c += kSummedColumns)
    row.sum +=
        part_to_weights(row, c, c + kSummedColumns < row.hi ? c + kSummedColumns : row.hi, row.maximum, unit);
  zero_weights(row, (row.hi + kWidth - 1) / kWidth * kWidth, row.cols);
}

void cap(float* scores, float* slopes, const ScoreRule& rule, int64_t lo, int64_t hi) {
  for (int64_t c = lo / kWidth * kWidth; c < hi; c += kWidth) {
    Vec capped = all(0.0f);
    store(scores + c, logits<float>(rule, load<Vec>(scores + c), all(0.0f), nullptr, kWidth, &capped));
    if (slopes) store(slopes + c, Softcap::derivative(capped) * rule.scale);
  }
}

/// Writes the weights of a vector of columns that begins at c, and returns which of them are visible.
template <bool kHalf, bool kDrop>
inline Int plain_weights(const SoftmaxRow& row, int64_t c, Vec distance) {
  Vec x = logits(row.rule, load<Vec>(row.scores + c), distance, row.bias ? row.bias + c : nullptr, row.hi - c,
                 nullptr);
  const Int seen = visible(row, c);
  x = select(seen, x, all(0.0f));
  store_weight<kHalf>(row, c, surviving<kDrop>(row.drop, c, x));
  return seen;
}

/// Writes the weights of the columns [first, hi), rounded up to whole vectors, and returns whether any is
/// visible.
template <bool kHalf, bool kDrop>
bool plain_row(const SoftmaxRow& row, int64_t first) {
  Int any = {};
  if (row.rule.alibi || row.rule.caps() || row.keep || row.bias) {
    Vec distance = row.distance - static_cast<float>(first) - lanes_as_floats();
    for (int64_t c = first; c < row.hi; c += kWidth, distance -= static_cast<float>(kWidth))
      any |= plain_weights<kHalf, kDrop>(row, c, distance);
    return sum(__builtin_convertvector(any, Vec)) != 0.0f;
  }
  // Without terms, only the vectors at both ends have hidden columns.
  int64_t c = first;
  if (c < row.lo) {
    plain_weights<kHalf, kDrop>(row, c, all(0.0f));
    c += kWidth;
  }
  float* const scores = row.scores;
  bf16_t* const weights16 = row.weights16;
  const uint16_t* const drop = row.drop;
  const Vec scale = all(row.rule.scale);
  const bool scaled = row.rule.scale != 1.0f;  // a score of the program's own is not
  const auto weight = [=](int64_t offset) {
    const Vec score = load<Vec>(scores + offset);
    return surviving<kDrop>(drop, offset, scaled ? score * scale : score);
  };
  for (; c + 2 * kWidth <= row.hi; c += 2 * kWidth)
    store_weights<kHalf>(scores, weights16, c, weight(c), weight(c + kWidth));
  for (; c + kWidth <= row.hi; c += kWidth) store_weight<kHalf>(row, c, weight(c));
  if (c < row.hi) plain_weights<kHalf, kDrop>(row, c, all(0.0f));
  return true;
}

void plain_rows(SoftmaxRow* rows, int64_t count) {
  for (int64_t r = 0; r < count; ++r) {
    SoftmaxRow& row = rows[r];
    row.rescale = 1.0f;
    if (row.hi <= row.lo) {
      zero_weights(row, 0, row.cols);
      continue;
    }
    const int64_t first = row.lo / kWidth * kWidth;
    zero_weights(row, 0, first);
    const auto write = row.weights16 ? (row.drop ? plain_row<true, true> : plain_row<true, false>)
                                     : (row.drop ? plain_row<false, true> : plain_row<false, false>);
    const bool any = write(row, first);
    zero_weights(row, (row.hi + kWidth - 1) / kWidth * kWidth, row.cols);
    if (!any) continue;
    row.maximum = 0.0f;
    row.sum = 1.0f;
  }
}

void softmax_rows(SoftmaxRow* rows, int64_t count) {
  for (int64_t r = 0; r < count; ++r) rows[r].peak = peak_of(rows[r]);
  for (int64_t r = 0; r < count; ++r) row_to_weights(rows[r]);
}

ATTENTIVE_SIMD_END
