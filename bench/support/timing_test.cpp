#include "support/timing.h"

#include <algorithm>
#include <vector>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

using bench::Effort;
using bench::measure_rate;
using Catch::Matchers::WithinRel;

namespace {

double cube(int64_t n) {
  return 2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n);
}

/// A simulated machine with its own clock, so that nothing waits.
struct Machine {
  double flops;          ///< a second
  double first_run = 0;  ///< additional seconds of the first run
  double clock = 0;
  std::vector<int64_t> sizes = {};

  double run(int64_t n) {
    const double taken = cube(n) / flops + (sizes.empty() ? first_run : 0.0);
    sizes.push_back(n);
    clock += taken;
    return taken;
  }
};

const Effort kProduct{.smallest = 64, .largest = 2048, .runs = 8, .budget = 1.0};

bench::Rate measure(Machine& machine, const Effort& effort = kProduct) {
  return measure_rate(effort, cube, [&](int64_t n) { return machine.run(n); });
}

}  // namespace

TEST_CASE("rate: a slow machine is measured within the budget", "[rate]") {
  for (const double flops : {3e7, 3e8, 3e9, 3e10, 3e11, 3e12}) {  // 2048^3 takes from ten minutes to 6 ms
    Machine machine{flops};
    const auto rate = measure(machine);
    CAPTURE(flops, rate.size);
    CHECK_THAT(rate.per_second, WithinRel(flops, 1e-12));
    CHECK(machine.clock <= kProduct.budget);
    CHECK(rate.size == machine.sizes.back());
  }
}

TEST_CASE("rate: a fast machine reaches the largest size, every run", "[rate]") {
  Machine machine{1e14};
  CHECK(measure(machine).size == 2048);
  CHECK(std::count(machine.sizes.begin(), machine.sizes.end(), 2048) == 8);
}

TEST_CASE("rate: the first run's start-up is not counted", "[rate]") {
  Machine machine{1e12, /*first_run=*/0.3};
  CHECK_THAT(measure(machine).per_second, WithinRel(1e12, 1e-12));
  CHECK(machine.clock <= kProduct.budget);
}

TEST_CASE("rate: one run too long for the budget is the only one", "[rate]") {
  Machine machine{1e5};
  CHECK_THAT(measure(machine).per_second, WithinRel(1e5, 1e-12));
  CHECK(machine.sizes == std::vector<int64_t>{64});
}

TEST_CASE("rate: the best run counts", "[rate]") {
  std::vector<double> times{5, 4, 2, 3, 9};
  size_t next = 0;
  const auto rate = measure_rate(
      {.smallest = 1, .largest = 1, .runs = 4, .budget = 100}, [](int64_t) { return 8.0; },
      [&](int64_t) { return times.at(next++); });
  CHECK(rate.per_second == 4.0);
  CHECK(next == 5);
}
