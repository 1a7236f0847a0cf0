#pragma once

// Calls whose scores are large and exact in float32, so that nothing but the softmax and the products after
// it can err.

#include <functional>
#include <vector>

#include "support/option_cases.h"

namespace attentive::test {

// Scores of `base` (a square of a number that bfloat16 holds) or -`base`, and small integers beside it. Heads
// 4 over 2, float64.
OptionCall exact_scores(double base, int64_t L, int64_t S, bool negative = false);

struct ExactVariant {
  const char* name;
  std::function<void(OptionCall&)> apply;
};

// Options that leave the scores of such a call exact.
const std::vector<ExactVariant>& exact_variants();

}  // namespace attentive::test
