// Scores and masks that nobody thought of. tools/checks/drawn_scores draws new ones.

#include "score/drawn_scores.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>

using namespace attentive::test;

TEST_CASE("drawn scores and masks: the kernel equals the reference for every instruction set",
          "[score][drawn]") {
  const auto number = GENERATE_COPY(range(size_t{0}, kDrawn.size()));
  INFO("draw_scores.py --seed " << kDrawnSeed);
  check_functions(kDrawn[number], number);
}
