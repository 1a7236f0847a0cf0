// The arrays by which tests of the kernels run fewer combinations than all.

#include "support/covering_array.h"

#include <cstdlib>
#include <set>
#include <vector>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

using namespace attentive::test;

namespace {

using Row = std::vector<size_t>;

// The combinations of levels in which these factors occur in the rows.
std::set<Row> combinations_in(const std::vector<Row>& rows, const Row& factors) {
  std::set<Row> all;
  for (const auto& row : rows) {
    Row levels;
    for (const size_t factor : factors) levels.push_back(row[factor]);
    all.insert(levels);
  }
  return all;
}

}  // namespace

TEST_CASE("covering array: any so many factors meet in every combination of their levels",
          "[covering][short]") {
  const auto levels =
      GENERATE(Row{16, 6, 5, 3}, Row{3, 2, 3, 2}, Row{3, 3, 2, 2, 3}, Row{1, 4, 2}, Row{2, 2, 2});
  const auto pairs = covering_array(levels, 2), triples = covering_array(levels, 3);
  for (const auto* rows : {&pairs, &triples}) {
    CHECK(std::set<Row>(rows->begin(), rows->end()).size() == rows->size());
    for (const auto& row : *rows) {
      REQUIRE(row.size() == levels.size());
      for (size_t factor = 0; factor < levels.size(); ++factor) CHECK(row[factor] < levels[factor]);
    }
  }
  for (size_t a = 0; a < levels.size(); ++a) {
    for (size_t b = 0; b < a; ++b) {
      CHECK(combinations_in(pairs, {a, b}).size() == levels[a] * levels[b]);
      for (size_t c = 0; c < b; ++c)
        CHECK(combinations_in(triples, {a, b, c}).size() == levels[a] * levels[b] * levels[c]);
    }
  }
}

TEST_CASE("covering array: as small as can be for the gradients of a bias, and all combinations at last",
          "[covering][short]") {
  // The two or three factors with the most levels need so many rows.
  CHECK(covering_array({16, 6, 5, 3}, 2).size() == 16 * 6);
  CHECK(covering_array({16, 6, 5, 3}, 3).size() == 16 * 6 * 5);
  CHECK(covering_array({16, 6, 5, 3}, 4).size() == 16 * 6 * 5 * 3);
  CHECK(covering_array({2, 3}, 3).size() == 2 * 3);
}

TEST_CASE("covering array: three factors meet on a processor's own instructions, two on fewer",
          "[covering][short]") {
  const bool limited =
      std::getenv("ATEN_CPU_CAPABILITY") != nullptr || std::getenv("ATTENTIVE_TEST_KERNELS") != nullptr;
  CHECK(limited_instructions() == limited);
  CHECK(rows_for_kernels({4, 3, 2, 2}) == covering_array({4, 3, 2, 2}, limited ? 2 : 3));
}
