#ifndef ATTENTIVE_SCORE_ROWS_H
#define ATTENTIVE_SCORE_ROWS_H

// The loops that call a function of pairs for the rows of a tile, one vector of pairs at a time. F is the
// type of the function.

#include <attentive/score/vectors/places.h>

ATTENTIVE_SIMD_BEGIN

template <bool kDual>
inline PlacesOfKeys<kDual> places_of_keys(CallbackRow& row) {
  return {{row.batch, &row},
          {row.head, &row},
          {row.query, &row},
          {row.key + row.column, &row},
          {{row.queries, &row}, row.log_queries},
          {{row.keys, &row}, row.log_keys}};
}
template <bool kDual>
inline PlacesOfQueries<kDual> places_of_queries(CallbackRow& row) {
  return {{row.batch, &row},
          {row.head, &row},
          {row.query + row.column, &row},
          {row.key, &row},
          {{row.queries, &row}, row.log_queries},
          {{row.keys, &row}, row.log_keys}};
}

/// A copy of the row without faults, for the loops: the compiler knows that stores to `scores` do not change
/// it, so that it computes what the pairs of a strip share before them.
inline CallbackRow faultless(const CallbackRow& row) {
  CallbackRow copy = row;
  copy.bad = nullptr;
  copy.divided_by_zero = false;
  return copy;
}

/// Moves the row at work to row n of a strip, whose queries or keys `place` counts. Returns false if the row
/// has no pairs.
inline bool go_to(CallbackRow& row, const detail::CallbackStrip& strip, int64_t n,
                  int64_t CallbackRow::*place) {
  row.lo = strip.ranges[n].lo;
  row.hi = strip.ranges[n].hi;
  row.*place = strip.row.*place + n;
  return row.lo < row.hi;
}

/// f(s) for the pairs of one query.
template <class F>
inline float scores_of_query(const F& f, CallbackRow& row, bool largest_wanted, float* __restrict scores) {
  Vec top = all(kMinusInfinity);
  const int64_t lo = row.lo, hi = row.hi;
  const float scale = row.slopes_given ? 1.0f : row.scale;
  for (int64_t c = lo / kWidth * kWidth; c < hi; c += kWidth) {
    row.column = c;
    const Vec s = product(load<Vec>(scores + c), scale);
    const auto y = f(lanes_of(s), places_of_keys<false>(row));
    static_assert(Term<std::remove_cvref_t<decltype(y)>>,
                  "a score function returns a number per pair: the new score");
    Vec x = vec(value(y));
    if (c < lo || c + kWidth > hi) x = select(in_range(row), x, all(kMinusInfinity));
    store(scores + c, x);
    if (largest_wanted) top = larger(x, top);
  }
  return largest(top);
}
template <class F>
__attribute__((flatten)) void scores_along_keys(const void* function, detail::CallbackStrip& strip) {
  CallbackRow row = faultless(strip.row);
  for (int64_t n = 0; n < strip.rows; ++n) {
    float top = kMinusInfinity;
    if (go_to(row, strip, n, &CallbackRow::query)) {
      top = scores_of_query(*static_cast<const F*>(function), row, strip.largest != nullptr,
                            strip.row.scores + n * strip.scores_stride);
    }
    if (strip.largest) strip.largest[n] = top;
  }
  strip.row.take_faults(row);
}

/// The derivative of a score as the kernel reads it: -0 where the score is a constant, which gets no gradient
/// even if its own is no finite number.
inline Vec stored_slope(const Slope& slope, Vec before) {
  return select(bits(slope.live), vec(slope.x) * before + 0.0f, all(-0.0f));
}
inline Vec stored_slope(NoSlope, Vec) {
  return all(-0.0f);
}

/// f(s) and its derivative for the pairs of one key.
template <class F>
inline void scores_of_key(const F& f, CallbackRow& row, float* __restrict scores, float* __restrict slopes) {
  const float scale = row.slopes_given ? 1.0f : row.scale;
  for (int64_t c = row.lo / kWidth * kWidth; c < row.hi; c += kWidth) {
    row.column = c;
    row.lookup = 0;
    const Vec s = product(load<Vec>(scores + c), scale);
    if (row.inputs) store(row.inputs + c, s);
    const auto y = f(Dual{lanes_of(s), slope_of(all(1.0f), all(-1))}, places_of_queries<true>(row));
    store(scores + c, vec(value(y)));
    const Vec before = row.slopes_given ? load<Vec>(slopes + c) : all(row.scale);
    store(slopes + c, stored_slope(slope(y), before));
  }
}
template <class F>
__attribute__((flatten)) void scores_along_queries(const void* function, detail::CallbackStrip& strip) {
  CallbackRow row = faultless(strip.row);
  row.seed = -1;
  for (int64_t n = 0; n < strip.rows; ++n) {
    if (!go_to(row, strip, n, &CallbackRow::key)) continue;
    if (strip.row.inputs) row.inputs = strip.row.inputs + n * strip.inputs_stride;
    scores_of_key(*static_cast<const F*>(function), row, strip.row.scores + n * strip.scores_stride,
                  strip.row.slopes + n * strip.slopes_stride);
  }
  strip.row.take_faults(row);
}

inline Vec product_of(const Slope& slope, Vec gradients) {
  return vec((slope * gradients).x);
}
inline Vec product_of(NoSlope, Vec) {
  return all(0.0f);
}

/// Adds the products of the gradients of f(s) and its derivatives by the numbers that it looked up to the
/// gradients of captured tensors, for the pairs of one key. `scores` holds s.
template <class F>
__attribute__((flatten)) void add_captured_gradients(const void* function, CallbackRow& row) {
  const F& f = *static_cast<const F*>(function);
  for (row.seed = 0;; ++row.seed) {
    row.seeded = nullptr;
    for (int64_t c = row.lo / kWidth * kWidth; c < row.hi; c += kWidth) {
      row.column = c;
      row.lookup = 0;
      const auto y = f(Dual{lanes_of(load<Vec>(row.scores + c)), slope_of(all(0.0f), all(0))},
                       places_of_queries<true>(row));
      if (!row.seeded || !row.seeded->gradient) break;
      const Vec gradients = load<Vec>(row.logit_gradients + c);
      float products[kWidth];
      store(products, product_of(slope(y), gradients));
      const Int shown = (Int)gradients != INT32_MIN;  // the gradient of a hidden pair is -0
      for (int i = 0; i < kWidth; ++i) {
        if (shown[i] == 0) continue;
        row.seeded->gradient[row.seeded_base + row.seeded_offsets[static_cast<size_t>(i)]] += products[i];
      }
    }
    if (!row.seeded) return;
  }
}

template <class Result>
inline Int condition_of(const Result& result) {
  static_assert(std::is_same_v<Result, LaneMask> || std::is_same_v<Result, bool>,
                "a mask function returns a condition per pair, such as pair.query >= pair.key");
  if constexpr (std::is_same_v<Result, bool>) {
    return all(result ? -1 : 0);
  } else {
    return bits(result);
  }
}

inline void hide(uint8_t* __restrict keep, Int shown) {
  store(keep, (Byte)(load<Byte>(keep) & __builtin_convertvector(shown, Byte)));
}

/// Hides the pairs of a row: of one query, or of one key. Columns beyond its range, whose vectors it pads,
/// mean nothing.
template <bool kAlongKeys, class F>
inline void hide_pairs(const F& f, CallbackRow& row, uint8_t* __restrict keep) {
  for (int64_t c = row.lo / kWidth * kWidth; c < row.hi; c += kWidth) {
    row.column = c;
    if constexpr (kAlongKeys) {
      hide(keep + c, condition_of(f(places_of_keys<false>(row))));
    } else {
      hide(keep + c, condition_of(f(places_of_queries<false>(row))));
    }
  }
}
template <class F, bool kAlongKeys>
__attribute__((flatten)) void mask_row(const void* function, CallbackRow& row) {
  CallbackRow copy = faultless(row);
  hide_pairs<kAlongKeys>(*static_cast<const F*>(function), copy, row.keep);
  row.take_faults(copy);
}

template <class F, bool kIsMask>
constexpr detail::PairFunctionCode code_of() {
  if constexpr (kIsMask) {
    return {.mask_along_keys = mask_row<F, true>, .mask_along_queries = mask_row<F, false>};
  } else {
    return {scores_along_keys<F>, scores_along_queries<F>, add_captured_gradients<F>};
  }
}

ATTENTIVE_SIMD_END

#endif

// Ends the code of one instruction set in a source that has several: the headers may be included again.
#ifdef ATTENTIVE_SIMD_SEVERAL
#undef ATTENTIVE_SIMD_NAMESPACE
#undef ATTENTIVE_SIMD_WIDTH
#undef ATTENTIVE_SCORE_VECTOR_H
#undef ATTENTIVE_SCORE_MATH_H
#undef ATTENTIVE_SCORE_LANES_H
#undef ATTENTIVE_SCORE_PLACES_H
#undef ATTENTIVE_SCORE_ROWS_H
#endif
