#pragma once

// The last step of a row's softmax, from its largest logit and its total, with sinks and extreme values: one
// rule for the CPU kernel and the CUDA kernel.

#include <cmath>

#include "kernels/host_device.h"

namespace attentive::kernels {

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
