#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

namespace bench {

/// Counts the seconds since its construction.
class Timer {
 public:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

/// Median and the band that holds the middle 80 % of the samples.
struct Spread {
  double p10 = 0;
  double median = 0;
  double p90 = 0;
};

/// Linear interpolation between order statistics. Of no samples: zeros.
Spread spread_of(std::vector<double> samples);

/// The median alone.
double median_of(std::vector<double> samples);

/// Limits the time of a measurement.
struct Effort {
  int64_t smallest = 1;
  int64_t largest = 1;  ///< sizes double from the smallest up to this one
  int runs = 8;         ///< number of runs at the chosen size
  double budget = 1.0;  ///< seconds; exceeded only if a single run of the smallest size takes longer
};

struct Rate {
  double per_second = 0;
  int64_t size = 0;  ///< the size at which it was reached
};

/// The best rate of several runs at the largest size that the budget allows; the best, because a limit is
/// what was reached once. A size is tried only if the previous one suggests that it needs at most half of the
/// budget. `work` returns the work of one run of a size; `seconds` runs it and returns the time.
Rate measure_rate(const Effort& effort, const std::function<double(int64_t)>& work,
                  const std::function<double(int64_t)>& seconds);

}  // namespace bench
