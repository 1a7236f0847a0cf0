#pragma once

#include "kernels/attention/call.h"
#include "kernels/row_end.h"

namespace attentive::kernels::cpu {

// What the backward pass has to know of each row of the forward pass, (B, H, L) each.
struct RowStatistics {
  float* maximum = nullptr;    // as ScoreRule keeps scores; 0 for a row without keys
  float* log_total = nullptr;  // natural logarithm; +inf for a row without keys
};

// `maximum` and `total` as SoftmaxRow leaves them. Dropout's scale is not in the factor.
RowEnd end_of_row(const Call& call, int64_t b, int64_t h, int64_t i, float maximum, float total);

// The weight of head h's sink in a row of these statistics.
float sink_weight(const Call& call, int64_t b, int64_t h, float maximum, float log_total);

}  // namespace attentive::kernels::cpu
