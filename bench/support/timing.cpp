#include "support/timing.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

namespace bench {
namespace {

double quantile(const std::vector<double>& sorted, double fraction) {
  const double place = fraction * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const auto above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], place - static_cast<double>(below));
}

}  // namespace

Spread spread_of(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::ranges::sort(samples);
  return {quantile(samples, 0.1), quantile(samples, 0.5), quantile(samples, 0.9)};
}

double median_of(std::vector<double> samples) {
  return spread_of(std::move(samples)).median;
}

Rate measure_rate(const Effort& effort, const std::function<double(int64_t)>& work,
                  const std::function<double(int64_t)>& seconds) {
  double spent = 0;
  const auto run = [&](int64_t size) {
    const double taken = std::max(seconds(size), 1e-9);
    spent += taken;
    return taken;
  };
  int64_t size = effort.smallest;
  double best = run(size);
  if (spent + best <= effort.budget) best = run(size);  // the first run includes compilation and page faults
  while (2 * size <= effort.largest) {
    const double expected = best * work(2 * size) / work(size);
    if (spent + expected > effort.budget / 2) break;
    size *= 2;
    best = run(size);
  }
  for (int runs = 1; runs < effort.runs && spent + best <= effort.budget; ++runs)
    best = std::min(best, run(size));
  return {work(size) / best, size};
}

}  // namespace bench
