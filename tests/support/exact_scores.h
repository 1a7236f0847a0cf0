#pragma once

// Calls whose scores are large and exact in float32, so that only the softmax and the products after it can
// have errors.

#include <functional>
#include <vector>

#include "support/option_cases.h"

namespace attentive::test {

/// A float64 call with scores of `base` or -`base` plus small integers, with 4 query heads over 2 key heads.
/// `base` is the square of a number that bfloat16 represents.
OptionCall exact_scores(double base, int64_t L, int64_t S, bool negative = false);

struct ExactVariant {
  const char* name;
  std::function<void(OptionCall&)> apply;
};

/// Options with which the scores of such a call are still exact.
const std::vector<ExactVariant>& exact_variants();

}  // namespace attentive::test
