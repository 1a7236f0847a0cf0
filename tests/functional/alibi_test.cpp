#include <cmath>

#include <catch2/catch_test_macros.hpp>

#include <attentive/functional/attention.h>

#include "support/compare.h"
#include "support/errors.h"

using namespace attentive;

TEST_CASE("alibi_slopes are those of the paper", "[alibi]") {
  CHECK(bit_equal(alibi_slopes(8).unsqueeze(0), test::table({{0.5f, 0.25f, 0.125f, 0.0625f, 0.03125f,
                                                              0.015625f, 0.0078125f, 0.00390625f}})));
  const auto three = alibi_slopes(3);
  for (int64_t h = 0; h < 3; ++h) {
    CHECK(std::abs(three[h].item<double>() - std::pow(2.0, -8.0 * static_cast<double>(h + 1) / 3)) < 1e-7);
  }
  CHECK(test::value_error([] { return alibi_slopes(0); }) == "alibi_slopes: expected num_heads > 0, got 0");
}
