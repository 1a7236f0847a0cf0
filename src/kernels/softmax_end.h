#pragma once

// How a row's softmax ends once the largest logit and the total beside it are known, sinks and extremes
// included: one rule for the CPU kernel and for the CUDA one.

#include <cmath>

#include "kernels/host_device.h"

namespace attentive::kernels {

// Logits are natural. For the backward pass a row is known by its maximum and the logarithm of its total,
// apart: beside a large maximum their sum, the logsumexp, has no digits left for the total. As it stands: a
// row that sees no key.
struct RowEnd {
  float factor = 0.0f;     // of exp(x - largest): the weight
  float top = -INFINITY;   // largest logit, the sink's included
  float total = 1.0f;      // of exp(x - top)
  float above = INFINITY;  // from the largest logit of the keys up to `top`
  float maximum = 0.0f;    // largest logit of the keys, as the caller keeps it

  ATTENTIVE_HOST_DEVICE float logsumexp() const { return top + logf(total); }
  ATTENTIVE_HOST_DEVICE float log_total() const { return above + logf(total); }
};

// `largest` is -inf and `total` 0 where every score is -inf. `maximum`: `largest` as the caller keeps it.
// `sink`: -inf if there is none; it has no value, only a weight. NaN among the scores is NaN in `total`.
ATTENTIVE_HOST_DEVICE RowEnd end_of_row(float largest, float total, float sink, float maximum) {
  // The limit of a growing sink, where inf - inf would be NaN.
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
            .maximum = 0.0f};  // 0, or NaN of a NaN
  }
  if (largest == INFINITY)
    return {.factor = NAN, .top = INFINITY, .total = 1.0f, .above = NAN, .maximum = maximum};  // inf - inf
  if (sink == -INFINITY)
    return {.factor = 1.0f / total, .top = largest, .total = total, .above = 0.0f, .maximum = maximum};
  const float top = sink > largest ? sink : largest, shrink = expf(largest - top);
  total = total * shrink + expf(sink - top);
  return {.factor = shrink / total, .top = top, .total = total, .above = top - largest, .maximum = maximum};
}

// The weight of a sink beside a row that ended so; `largest` belongs to its `maximum`.
ATTENTIVE_HOST_DEVICE float sink_weight(float sink, float largest, float log_total) {
  return log_total == INFINITY ? 0.0f : expf(sink - largest - log_total);
}

}  // namespace attentive::kernels
