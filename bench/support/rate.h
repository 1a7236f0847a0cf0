#pragma once

#include <cstdint>
#include <functional>

namespace bench {

/// How far a measurement may go.
struct Effort {
  int64_t smallest = 1;
  int64_t largest = 1;  ///< sizes double from the smallest up to this one
  int runs = 8;         ///< of the size that was chosen
  double budget = 1.0;  ///< seconds; exceeded only where one run of the smallest size takes longer
};

struct Rate {
  double per_second = 0;
  int64_t size = 0;  ///< the size at which it was reached
};

/// Work a second at the largest size that the budget allows, the best of several runs: a limit is what was
/// reached once. A size is tried only if the one before lets expect that it leaves half of the budget.
/// `work` is the work of one run of a size, `seconds` runs it and tells how long it took.
Rate measure_rate(const Effort& effort, const std::function<double(int64_t)>& work,
                  const std::function<double(int64_t)>& seconds);

}  // namespace bench
