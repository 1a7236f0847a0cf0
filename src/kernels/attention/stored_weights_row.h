#pragma once

// Turns a row of dP = dO Vᵀ into a row of dS, from the weights of the row.

#include "kernels/attention/logits.h"
#include "kernels/simd/half_types.h"

ATTENTIVE_SIMD_BEGIN

/// The variants of the loops over a row.
struct StoredWeightsKind {
  bool drop;  ///< dropout
  Hides hides;
};

/// Which columns of a vector are visible.
template <Hides kHides>
inline Int shown(const SoftmaxRow& row, int64_t c) {
  if constexpr (kHides == Hides::Anything) return visible(row, c);
  return BiasTerm::shows(row.bias ? load<Vec>(row.bias + c) : load_part(row.bias16 + c, kWidth));
}

/// Adds the incoming gradients of the weights in the columns [first, hi) to the products, copies the weights
/// to `dropped`, and returns the dot product of the two.
template <StoredWeightsKind kKind>
float sum_of_gradients(const StoredWeightsRow& row, int64_t first, int64_t hi) {
  const SoftmaxRow& terms = *row.terms;
  const float *const weights = row.weights, *const grad_weights = row.grad_weights;
  float *const products = row.products, *const dropped = row.dropped;
  const uint16_t* const drop = terms.drop;
  const Vec survivor_scale = all(row.survivor_scale);
  const auto get = [&](const float* from, int64_t c) {
    return kKind.hides == Hides::Anything ? load_part(from + c, hi - c) : load<Vec>(from + c);
  };
  const auto product_at = [&](int64_t c) {
    Vec weight = get(weights, c), gradient = load<Vec>(products + c);
    if constexpr (kKind.drop) gradient = surviving<true>(drop, c, gradient * survivor_scale);
    gradient += get(grad_weights, c);
    if constexpr (kKind.hides != Hides::Nothing) {
      const Int seen = shown<kKind.hides>(terms, c);
      weight = select(seen, weight, all(0.0f));
      gradient = select(seen, gradient, all(0.0f));
    }
    store(dropped + c, weight);
    store(products + c, gradient);
    return weight * gradient;
  };
  Vec total = all(0.0f), other = total;
  int64_t c = first;
  for (; c + kWidth < hi; c += 2 * kWidth) {
    total += product_at(c);
    other += product_at(c + kWidth);
  }
  if (c < hi) total += product_at(c);
  return sum(total + other);
}

template <StoredWeightsKind kKind>
void finish_gradients(const StoredWeightsRow& given, int64_t first, int64_t hi) {
  // Local copies stay in registers: the compiler must assume that the stores in the loop may change `given`.
  const StoredWeightsRow row = given;
  const SoftmaxRow& terms = *row.terms;
  const uint16_t* const drop = terms.drop;
  const Vec delta = all(row.delta), scale = all(terms.rule.scale), survivor_scale = all(row.survivor_scale);
  for (int64_t c = first; c < hi; c += kWidth) {
    const Vec weight = load<Vec>(row.dropped + c);
    Vec gradient = load<Vec>(row.products + c);
    if (row.normalised) gradient = weight * (gradient - delta);
    if constexpr (kKind.hides != Hides::Nothing)
      gradient = select(shown<kKind.hides>(terms, c), gradient, all(0.0f));
    if constexpr (kKind.drop) store(row.dropped + c, surviving<true>(drop, c, weight * survivor_scale));
    if (row.logits) store(row.logits + c, gradient);
    store(row.products + c, gradient * scale);
  }
}

inline void clear_gradients(const StoredWeightsRow& row, int64_t from, int64_t to) {
  for (int64_t c = from; c < to; c += kWidth) {
    store(row.products + c, all(0.0f));
    store(row.dropped + c, all(0.0f));
    if (row.logits) store(row.logits + c, all(0.0f));
  }
}

/// Calls work.template operator()<kHides>(from, to) for parts of the columns that are visible by position,
/// which begin and end at whole vectors.
template <class Work>
inline void for_columns(const SoftmaxRow& row, const Work& work) {
  const int64_t first = row.lo / kWidth * kWidth, last = (row.hi + kWidth - 1) / kWidth * kWidth,
                from = (row.lo + kWidth - 1) / kWidth * kWidth, to = row.hi / kWidth * kWidth;
  if (row.keep || from >= to) return work.template operator()<Hides::Anything>(first, last);
  if (first < from) work.template operator()<Hides::Anything>(first, from);
  row.has_bias() ? work.template operator()<Hides::Bias>(from, to)
                 : work.template operator()<Hides::Nothing>(from, to);
  if (to < last) work.template operator()<Hides::Anything>(to, last);
}

template <bool kDrop>
inline void stored_weights_row_as(StoredWeightsRow& row) {
  const SoftmaxRow& terms = *row.terms;
  // Parts of a long row are summed separately, so that rounding errors grow with their size and number rather
  // than with the length of the row.
  for_columns(terms, [&]<Hides kHides>(int64_t from, int64_t to) {
    for (int64_t c = from; c < to; c += kSummedColumns) {
      const int64_t end = c + kSummedColumns < to ? c + kSummedColumns : to;
      row.delta +=
          sum_of_gradients<StoredWeightsKind{kDrop, kHides}>(row, c, end < terms.hi ? end : terms.hi);
    }
  });
  for_columns(terms, [&]<Hides kHides>(int64_t from, int64_t to) {
    finish_gradients<StoredWeightsKind{kDrop, kHides}>(row, from, to);
  });
}

void stored_weights_row(StoredWeightsRow& row) {
  const SoftmaxRow& terms = *row.terms;
  if (terms.hi <= terms.lo) return clear_gradients(row, 0, terms.cols);
  clear_gradients(row, 0, terms.lo / kWidth * kWidth);
  terms.drop ? stored_weights_row_as<true>(row) : stored_weights_row_as<false>(row);
  clear_gradients(row, (terms.hi + kWidth - 1) / kWidth * kWidth, terms.cols);
}

ATTENTIVE_SIMD_END
