#include "support/rate.h"

#include <algorithm>

namespace bench {

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
