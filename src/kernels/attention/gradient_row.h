#pragma once

// Turns a row of dPᵀ = V dOᵀ into a row of dSᵀ.

#include "kernels/attention/logits.h"
#include "kernels/simd/bfloat16.h"

ATTENTIVE_SIMD_BEGIN

template <bool kHalf>
inline void store_gradient(const GradientRow& row, int64_t c, Vec weight, Vec gradient) {
  if constexpr (kHalf) {
    store(row.weights16 + c, narrow_fast(weight));
    store(row.gradients16 + c, narrow_fast(gradient));
  } else {
    store(row.scores + c, weight);
    store(row.products + c, gradient);
  }
}

/// One vector of columns. kPlain: no softcap, slope or bias. kEdge: some columns may be hidden.
template <bool kHalf, bool kDrop, bool kPlain, bool kEdge>
inline void gradient_at(const GradientRow& row, int64_t c) {
  Vec x = load<Vec>(row.scores + c);
  Vec capped = all(0.0f);
  if constexpr (!kPlain) {
    const Vec distance = row.distance + static_cast<float>(c) + lanes_as_floats();
    x = logits(row.rule, x, distance, row.bias ? row.bias + c : nullptr, row.hi - c, &capped);
  }
  const float unit = kPlain ? row.rule.scale * kLog2e : kLog2e;
  // A weight is at most 1, and rounding of very large scores must not make it larger.
  const Vec t = (x - load<Vec>(row.maximum + c)) * unit - load<Vec>(row.log_total + c);
  Vec weight = exp2<kHalf>(t > all(0.0f) ? all(0.0f) : t);
  Vec gradient = load<Vec>(row.products + c);
  Vec dropped = weight;
  if constexpr (kDrop) {
    const Half bits = load<Half>(row.drop + c);
    const Int survives = ((__builtin_convertvector(bits, Int) >> row.drop_bit) & 1) != 0;
    dropped = select(survives, weight * row.survivor_scale, all(0.0f));
    gradient = select(survives, gradient * row.survivor_scale, all(0.0f));
  }
  gradient = weight * (gradient - load<Vec>(row.delta + c));
  if (!kPlain && row.rule.softcap != 0.0f) gradient = gradient * (1.0f - capped * capped);
  gradient = gradient * row.rule.scale;
  if constexpr (kEdge) {
    const Int seen = visible(row, c);
    dropped = select(seen, dropped, all(0.0f));
    gradient = select(seen, gradient, all(0.0f));
  }
  store_gradient<kHalf>(row, c, dropped, gradient);
}

template <bool kHalf, bool kDrop, bool kPlain>
void gradient_columns(const GradientRow& row) {
  const bool masked = row.keep || row.bias;
  int64_t c = 0;
  for (; c < row.cols && c + kWidth <= row.lo; c += kWidth)
    store_gradient<kHalf>(row, c, all(0.0f), all(0.0f));
  for (; c < row.hi && (masked || c < row.lo); c += kWidth) gradient_at<kHalf, kDrop, kPlain, true>(row, c);
  for (; c + kWidth <= row.hi; c += kWidth) gradient_at<kHalf, kDrop, kPlain, false>(row, c);
  if (c < row.hi) {
    gradient_at<kHalf, kDrop, kPlain, true>(row, c);
    c += kWidth;
  }
  for (; c < row.cols; c += kWidth) store_gradient<kHalf>(row, c, all(0.0f), all(0.0f));
}

template <bool kHalf>
inline void gradient_row_as(const GradientRow& row) {
  const bool plain = row.rule.plain() && !row.bias;
  if (row.drop) {
    plain ? gradient_columns<kHalf, true, true>(row) : gradient_columns<kHalf, true, false>(row);
  } else {
    plain ? gradient_columns<kHalf, false, true>(row) : gradient_columns<kHalf, false, false>(row);
  }
}

void gradient_row(const GradientRow& row) {
  row.weights16 ? gradient_row_as<true>(row) : gradient_row_as<false>(row);
}

ATTENTIVE_SIMD_END
