#pragma once

// Calls with numbers at the ends of float32: biases, slopes and sinks near the largest number or not finite,
// and scores that overflow.

#include <string>
#include <vector>

#include "support/compare.h"
#include "support/option_cases.h"

namespace attentive::test {

struct ExtremeCase {
  std::string name;
  OptionCall call;
};

/// Calls with L queries, 4 query heads over 2 key heads, float64 tensors whose numbers also fit in bfloat16
/// (possibly rounded), and the logsumexp requested.
std::vector<ExtremeCase> extreme_cases(int64_t L);

/// Like difference() with the tolerance of `type`, but NaN equals NaN.
std::string difference_beside_nan(const at::Tensor& got, const at::Tensor& want, at::ScalarType type,
                                  bool gradient = false);

}  // namespace attentive::test
