#pragma once

// Turns a row of dPᵀ = V dOᵀ into a row of dSᵀ.

#include "kernels/attention/logits.h"
#include "kernels/simd/half_types.h"

ATTENTIVE_SIMD_BEGIN

/// The variants of the loop over a row.
struct GradientKind {
  bool half = false;   ///< weights and gradients are written as bfloat16
  bool drop = false;   ///< dropout
  bool plain = false;  ///< no term but the scale
  /// Gradients of logits are written, weights have incoming ones, or scores are the program's own.
  bool logits = false;
  bool user = false;  ///< weights are the program's own scores, without any of these terms
};

template <GradientKind kKind>
inline void store_gradient(const GradientRow& row, int64_t c, Vec weight, Vec gradient, Vec of_logit) {
  if constexpr (kKind.half) {
    store(row.weights16 + c, narrow_fast(weight));
    store(row.gradients16 + c, narrow_fast(gradient));
  } else {
    store(row.scores + c, weight);
    store(row.products + c, gradient);
  }
  if constexpr (kKind.logits) {
    if (row.logits) store(row.logits + c, of_logit);
  }
}

/// The gradient of q·k for that of the program's own score, which is a constant if its slope is -0.
inline Vec through_score(Vec gradient, Vec slope) {
  return select((Int)slope == INT32_MIN, all(0.0f), gradient * slope);
}

/// The gradient of a hidden pair's logit, by which the code of the program's own score tells it from others.
inline float hidden_logit(const GradientRow& row) {
  return row.slopes ? -0.0f : 0.0f;
}

/// One vector of columns.
template <GradientKind kKind, Hides kHides>
inline void gradient_at(const GradientRow& row, int64_t c) {
  Vec x = load<Vec>(row.scores + c);
  Vec capped = all(0.0f);
  if (!kKind.plain && !kKind.user) {
    const Vec distance = row.distance + static_cast<float>(c) + lanes_as_floats();
    x = logits(row.rule, x, distance, row.bias ? row.bias + c : nullptr, row.hi - c, &capped);
  }
  const bool softmax = !kKind.user && (!kKind.logits || row.normalised);
  Vec weight = x;
  if (softmax) {
    const float unit = kKind.plain ? row.rule.scale * kLog2e : kLog2e;
    // A weight is at most 1, and rounding of very large scores must not make it larger.
    const Vec t = (x - load<Vec>(row.maximum + c)) * unit - load<Vec>(row.log_total + c);
    weight = exp2<kKind.half>(t > all(0.0f) ? all(0.0f) : t);
  }
  Vec gradient = load<Vec>(row.products + c);
  Vec grad_weight = all(0.0f);
  if constexpr (kKind.logits) {
    if (row.grad_weights) grad_weight = load_part(row.grad_weights + c, row.hi - c);
    if (row.of_dropped) gradient += grad_weight;
  }
  Vec dropped = weight;
  if constexpr (kKind.drop) {
    const Half bits = load<Half>(row.drop + c);
    const Int survives = ((__builtin_convertvector(bits, Int) >> row.drop_bit) & 1) != 0;
    dropped = select(survives, weight * row.survivor_scale, all(0.0f));
    gradient = select(survives, gradient * row.survivor_scale, all(0.0f));
  }
  if constexpr (kKind.logits) {
    if (!row.of_dropped) gradient += grad_weight;
  }
  if (softmax) gradient = weight * (gradient - load<Vec>(row.delta + c));
  Vec of_logit = gradient + 0.0f;  // never -0
  if (!kKind.plain && !kKind.user) gradient = row.rule.through_cap(gradient, capped);
  if (kKind.user || (kKind.logits && row.slopes)) {
    gradient = through_score(gradient, load<Vec>(row.slopes + c));
  } else {
    gradient = gradient * row.rule.scale;
  }
  if constexpr (kHides != Hides::Nothing) {
    const Int seen = kHides == Hides::Bias ? BiasTerm::shows(load<Vec>(row.bias + c)) : visible(row, c);
    dropped = select(seen, dropped, all(0.0f));
    gradient = select(seen, gradient, all(0.0f));
    of_logit = select(seen, of_logit, all(hidden_logit(row)));
  }
  store_gradient<kKind>(row, c, dropped, gradient, of_logit);
}

template <GradientKind kKind>
void gradient_columns(const GradientRow& given) {
  // The compiler must assume that the stores in the loop may change `given`.
  const GradientRow row = given;
  const auto hide = [&](int64_t c) {
    store_gradient<kKind>(row, c, all(0.0f), all(0.0f), all(hidden_logit(row)));
  };
  int64_t c = 0;
  for (; c < row.cols && c + kWidth <= row.lo; c += kWidth) hide(c);
  for (; c < row.hi && (row.keep || c < row.lo); c += kWidth) gradient_at<kKind, Hides::Anything>(row, c);
  if constexpr (!kKind.plain) {
    if (row.bias) {
      for (; c + kWidth <= row.hi; c += kWidth) gradient_at<kKind, Hides::Bias>(row, c);
    }
  }
  for (; c + kWidth <= row.hi; c += kWidth) gradient_at<kKind, Hides::Nothing>(row, c);
  if (c < row.hi) {
    gradient_at<kKind, Hides::Anything>(row, c);
    c += kWidth;
  }
  for (; c < row.cols; c += kWidth) hide(c);
}

template <bool kHalf, bool kDrop>
inline void gradient_row_as(const GradientRow& row) {
  // A row without statistics keeps natural logits.
  const bool plain = row.rule.plain() && !row.bias && row.normalised;
  const bool user =
      row.slopes && !row.normalised && !row.rule.alibi && !row.bias && !row.logits && !row.grad_weights;
  if (user) {
    gradient_columns<GradientKind{.half = kHalf, .drop = kDrop, .user = true}>(row);
  } else if (row.logits || row.grad_weights || row.slopes || !row.normalised) {
    plain ? gradient_columns<GradientKind{kHalf, kDrop, true, true}>(row)
          : gradient_columns<GradientKind{kHalf, kDrop, false, true}>(row);
  } else {
    plain ? gradient_columns<GradientKind{kHalf, kDrop, true, false}>(row)
          : gradient_columns<GradientKind{kHalf, kDrop, false, false}>(row);
  }
}

void gradient_row(const GradientRow& row) {
  if (row.weights16) {
    row.drop ? gradient_row_as<true, true>(row) : gradient_row_as<true, false>(row);
  } else {
    row.drop ? gradient_row_as<false, true>(row) : gradient_row_as<false, false>(row);
  }
}

LogitSums logit_sums(const float* gradients, float distance, int64_t count) {
  Vec total = all(0.0f), by_distance = total;
  for (int64_t c = 0; c < count; c += kWidth) {
    const Vec gradient = load_part(gradients + c, count - c);
    total += gradient;
    by_distance += gradient * magnitude(distance + static_cast<float>(c) + lanes_as_floats());
  }
  return {sum(total), sum(by_distance)};
}

void add_logits(const float* gradients, float distance, float* totals, float* by_distance, int64_t count) {
  for (int64_t c = 0; c < count; c += kWidth) {
    const int64_t n = count - c;
    const Vec gradient = load_part(gradients + c, n);
    if (totals) store_part(totals + c, load_part(totals + c, n) + gradient, n);
    if (!by_distance) continue;
    const Vec far = magnitude(distance - static_cast<float>(c) - lanes_as_floats());
    store_part(by_distance + c, load_part(by_distance + c, n) + gradient * far, n);
  }
}

ATTENTIVE_SIMD_END
