#include <cmath>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include <attentive/train/adamw.h>

#include "support/errors.h"

using namespace attentive;
using Catch::Matchers::WithinAbs;

TEST_CASE("CosineSchedule warms up and falls along half a cosine", "[schedule]") {
  const CosineSchedule schedule{.peak = 1e-3, .floor = 1e-4, .warmup = 100, .total = 2000};
  CHECK_THAT(schedule.at(0), WithinAbs(1e-3 / 101, 1e-15));
  CHECK_THAT(schedule.at(99), WithinAbs(1e-3 * 100 / 101, 1e-15));
  CHECK_THAT(schedule.at(100), WithinAbs(1e-3, 1e-15));
  CHECK_THAT(schedule.at(1050), WithinAbs(5.5e-4, 1e-15));  // half way: the mean of both ends
  CHECK_THAT(schedule.at(575), WithinAbs(1e-4 + 9e-4 * (1 + std::sqrt(0.5)) / 2, 1e-15));
  CHECK_THAT(schedule.at(2000), WithinAbs(1e-4, 1e-15));
  CHECK_THAT(schedule.at(5000), WithinAbs(1e-4, 1e-15));
  for (int64_t step = 100; step < 2000; ++step) CHECK(schedule.at(step + 1) < schedule.at(step));
}

TEST_CASE("CosineSchedule refuses settings without meaning", "[schedule]") {
  using test::value_error;
  CHECK(value_error([] { return CosineSchedule{.peak = 1e-4, .floor = 1e-3}.at(0); }) ==
        "CosineSchedule: expected 0 <= floor <= peak, got floor = 0.001, peak = 0.0001");
  CHECK(value_error([] { return CosineSchedule{.peak = NAN}.at(0); }) ==
        "CosineSchedule: expected 0 <= floor <= peak, got floor = 0, peak = nan");
  CHECK(value_error([] { return CosineSchedule{.warmup = -1}.at(0); }) ==
        "CosineSchedule: expected warmup >= 0 and total >= 0, got -1 and 0");
}
