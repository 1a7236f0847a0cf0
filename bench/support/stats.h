#pragma once

#include <vector>

namespace bench {

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

}  // namespace bench
