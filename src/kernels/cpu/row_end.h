#pragma once

#include <cmath>

#include "kernels/cpu/call.h"

namespace attentive::kernels::cpu {

// What the backward pass has to know of each row of the forward pass, (B, H, L) each. Maximum and total stay
// apart: beside a large maximum their sum, the logsumexp, has no digits left for the total.
struct RowStatistics {
  float* maximum = nullptr;    // as ScoreRule keeps scores; 0 for a row without keys
  float* log_total = nullptr;  // natural logarithm; +inf for a row without keys
};

// What a row's running softmax comes to, its sink included. As it stands: a row without keys.
struct RowEnd {
  float factor = 0.0f;      // of the sum of values and of the weights; dropout's scale is not in it
  float top = -kInfinity;   // largest natural logit, the sink's included
  float total = 1.0f;       // of the weights beside it
  float maximum = 0.0f;     // as in RowStatistics
  float above = kInfinity;  // from the largest natural logit of the keys up to `top`

  float logsumexp() const { return top + std::log(total); }
  float log_total() const { return above + std::log(total); }
};

// `maximum` and `total` as SoftmaxRow leaves them.
RowEnd end_of_row(const Call& call, int64_t b, int64_t h, int64_t i, float maximum, float total);

// The weight of head h's sink in a row of these statistics.
float sink_weight(const Call& call, int64_t b, int64_t h, float maximum, float log_total);

}  // namespace attentive::kernels::cpu
