#include "support/stats.h"

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

}  // namespace bench
