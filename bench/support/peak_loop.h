#pragma once

#include <functional>

#include "support/rate.h"

namespace bench {

/// Flop/s of `loop(steps)` on `threads` threads at once; a step is so many flops.
struct Loop {
  std::function<void(int64_t steps)> run;
  double flops_a_step = 0;
  int threads = 1;

  double rate_over(int64_t steps) const;
  /// Over as many steps as take about `seconds` at `rate`.
  double rate_for(double seconds, double rate) const;
  /// Within about a second: many short runs, because a busy machine grants no long one to all threads.
  Rate measure(int64_t fewest_steps, int64_t most_steps) const;
};

/// Flop/s of at::mm of square matrices on all threads, at the largest size that a second allows.
enum class MatrixType { Float, BFloat16 };
Rate large_product(MatrixType type);

}  // namespace bench
