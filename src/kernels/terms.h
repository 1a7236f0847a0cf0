#pragma once

// Arithmetic that the CPU and the GPU share: the built-in terms of a logit, one struct each, and the last
// step of a row's softmax. Its functions are always inlined, so that vector code may include it.

#include <cmath>

#if defined(__CUDACC__)
#define ATTENTIVE_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define ATTENTIVE_HOST_DEVICE __attribute__((always_inline)) inline
#endif

namespace attentive::kernels {

/// A rounded product. nvcc could fuse it with a following sum in one pass and not in another, but the passes
/// must compute the same bits.
ATTENTIVE_HOST_DEVICE float product(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}

// A Number is a float, or a vector of floats. Math has its functions: product (rounded), quotient, tanh and
// magnitude.

/// softcap * tanh(x / softcap)
struct Softcap {
  float cap = 0.0f;  ///< 0: none

  ATTENTIVE_HOST_DEVICE explicit operator bool() const { return cap != 0.0f; }
  template <class Math, class Number>
  ATTENTIVE_HOST_DEVICE Number apply(Number x, Number& tanh) const {
    tanh = Math::tanh(Math::quotient(x, cap));
    return Math::product(tanh, cap);
  }
  /// The derivative by x.
  template <class Number>
  ATTENTIVE_HOST_DEVICE static Number derivative(Number tanh) {
    return 1.0f - tanh * tanh;
  }
};

/// -slope * |distance|
struct Alibi {
  float slope = 0.0f;  ///< 0: none

  ATTENTIVE_HOST_DEVICE explicit operator bool() const { return slope != 0.0f; }
  template <class Math, class Number>
  ATTENTIVE_HOST_DEVICE Number apply(Number x, Number distance) const {
    return x - Math::product(Math::magnitude(distance), slope);
  }
};

/// A number that is added; -inf hides the pair.
struct BiasTerm {
  template <class Number>
  ATTENTIVE_HOST_DEVICE static Number apply(Number x, Number bias) {
    return x + bias;
  }
  template <class Number>
  ATTENTIVE_HOST_DEVICE static auto shows(Number bias) {
    return bias != Number{} - INFINITY;
  }
};

/// Position and length, which leave a range of columns, and a mask of pairs.
struct MaskTerm {
  template <class Index, class Bound>
  ATTENTIVE_HOST_DEVICE static auto in_range(Index column, Bound lo, Bound hi) {
    return (column >= lo) & (column < hi);
  }
  template <class Keep>
  ATTENTIVE_HOST_DEVICE static auto shows(Keep keep) {
    return keep != 0;
  }
};

/// The terms that all pairs of a head share.
struct ScoreRule {
  float scale = 1.0f;
  Softcap softcap = {};
  Alibi alibi = {};

  ATTENTIVE_HOST_DEVICE bool caps() const { return static_cast<bool>(softcap); }
  /// The rule with the cap and the slope that are asked for.
  ATTENTIVE_HOST_DEVICE ScoreRule with(bool cap, bool slope) const {
    return {scale, cap ? softcap : Softcap{}, slope ? alibi : Alibi{}};
  }
  /// Whether the rule is only a positive scale.
  ATTENTIVE_HOST_DEVICE bool plain() const { return !softcap && !alibi && scale > 0.0f; }
  /// The factor from the units in which a row's scores and maximum are kept to natural logits. They are kept
  /// as q·k if the rule is plain and there is no bias, else as natural logits: in base 2, a bias or slope
  /// near the largest float would overflow.
  ATTENTIVE_HOST_DEVICE float to_natural(bool has_bias) const { return plain() && !has_bias ? scale : 1.0f; }

  /// Converts raw scores to natural logits. Every step is rounded, because the backward pass subtracts the
  /// maximum of the forward pass, so both passes must compute the same bits. `bias` is called if there is
  /// one. `tanh` receives that of the softcap, for its derivative.
  template <class Math, class Number, class Bias>
  ATTENTIVE_HOST_DEVICE Number logit(Number raw, Number distance, bool has_bias, const Bias& bias,
                                     Number& tanh) const {
    Number x = Math::product(raw, scale);
    if (softcap) x = softcap.apply<Math>(x, tanh);
    if (has_bias) x = BiasTerm::apply(x, bias());
    if (alibi) x = alibi.apply<Math>(x, distance);
    return x;
  }
  /// The gradient of a scaled score, from that of its logit.
  template <class Number>
  ATTENTIVE_HOST_DEVICE Number through_cap(Number gradient, Number tanh) const {
    return softcap ? gradient * Softcap::derivative(tanh) : gradient;
  }
};

/// The final statistics of a row; logits are natural. The backward pass needs the maximum and the logarithm
/// of the total separately: in their sum, the logsumexp, a large maximum would swallow the digits of the
/// total. The defaults describe a row that sees no key.
struct RowEnd {
  float factor = 0.0f;     ///< weight = factor * exp(x - largest)
  float top = -INFINITY;   ///< largest logit, sink included
  float total = 1.0f;      ///< sum of exp(x - top)
  float above = INFINITY;  ///< top minus the largest logit of the keys
  float maximum = 0.0f;    ///< largest logit of the keys, in the units of the caller

  ATTENTIVE_HOST_DEVICE float logsumexp() const { return top + logf(total); }
  ATTENTIVE_HOST_DEVICE float log_total() const { return above + logf(total); }
};

/// `largest` is the natural largest logit and `total` the sum of exp(x - largest); they are -inf and 0 if
/// every score is -inf. `maximum` is `largest` in the units of the caller. `sink` is -inf if there is none.
/// If a score is NaN, so is `total`.
ATTENTIVE_HOST_DEVICE RowEnd end_of_row(float largest, float total, float sink, float maximum) {
  // Returns the limit for a growing sink, since the formula below would compute inf - inf.
  if (sink == INFINITY)
    return {.factor = 0.0f,
            .top = INFINITY,
            .total = 1.0f,
            .above = INFINITY,
            .maximum = total == 0.0f ? 0.0f : maximum};
  if (total == 0.0f) {
    if (sink == -INFINITY)
      return {.factor = NAN, .top = -INFINITY, .total = 1.0f, .above = NAN, .maximum = NAN};  // 0 / 0
    return {.factor = sink - sink,
            .top = sink,
            .total = 1.0f,
            .above = sink,
            .maximum = 0.0f};  // the factor is 0, or NaN for a sink of NaN
  }
  if (largest == INFINITY)
    return {.factor = NAN, .top = INFINITY, .total = 1.0f, .above = NAN, .maximum = maximum};  // inf - inf
  if (sink == -INFINITY)
    return {.factor = 1.0f / total, .top = largest, .total = total, .above = 0.0f, .maximum = maximum};
  const float top = sink > largest ? sink : largest, shrink = expf(largest - top);
  total = total * shrink + expf(sink - top);
  return {.factor = shrink / total, .top = top, .total = total, .above = top - largest, .maximum = maximum};
}

/// The weight of a sink in a row with this log_total; `largest` is the natural logit of its `maximum`.
ATTENTIVE_HOST_DEVICE float sink_weight(float sink, float largest, float log_total) {
  return log_total == INFINITY ? 0.0f : expf(sink - largest - log_total);
}

}  // namespace attentive::kernels
