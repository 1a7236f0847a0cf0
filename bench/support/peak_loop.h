#pragma once

#include <functional>

#include "support/rate.h"

namespace bench {

/// Measures the flop/s of `loop(steps)` on `threads` threads at once, given the flops of one step.
struct Loop {
  std::function<void(int64_t steps)> run;
  double flops_a_step = 0;
  int threads = 1;

  double rate_over(int64_t steps) const;
  /// Measures with as many steps as take about `seconds` at `rate`.
  double rate_for(double seconds, double rate) const;
  /// Measures for about a second, by many short runs: on a busy machine, all threads are rarely free for
  /// longer.
  Rate measure(int64_t fewest_steps, int64_t most_steps) const;
};

/// Measures the flop/s of at::mm for square matrices on all threads, at the largest size that a second
/// allows.
enum class MatrixType { Float, BFloat16 };
Rate large_product(MatrixType type);

}  // namespace bench
