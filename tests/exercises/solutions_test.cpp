#include <catch2/catch_test_macros.hpp>

#include "support/exercise.h"

TEST_CASE("every solution of the exercises passes its check", "[exercises]") {
  CHECK(exercises::all().size() == 13);
  for (const auto& exercise : exercises::all()) {
    const auto not_yet = exercises::run(exercise);
    INFO("exercise " << exercise.number << ", hint " << (not_yet ? not_yet->hint : 0) << ": "
                     << (not_yet ? not_yet->found : ""));
    CHECK_FALSE(not_yet.has_value());
  }
}
