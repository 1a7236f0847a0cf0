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

// Of L queries; heads 4 over 2, logsumexp wanted, float64 tensors whose numbers bfloat16 holds or rounds.
std::vector<ExtremeCase> extreme_cases(int64_t L);

// As difference() in the tolerance of `type`, but NaN equals NaN.
std::string difference_beside_nan(const at::Tensor& got, const at::Tensor& want, at::ScalarType type,
                                  bool gradient = false);

}  // namespace attentive::test
