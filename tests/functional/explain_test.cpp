#include <sstream>

#include <ATen/ops/randn.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <attentive/functional/explain.h>
#include <attentive/score/score_mod.h>

#include "support/compare.h"
#include "support/errors.h"

using namespace attentive;
using attentive::test::error_of;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("explain prints a table", "[backend][explain]") {
  const auto x = at::randn({1, 2, 4, 8});
  const auto text = explain(x, x, x, {.dropout_p = 0.1, .dropout_stream = DropoutStream::Aten}).to_string();
  CHECK_THAT(text, ContainsSubstring("reference  chosen"));
  CHECK_THAT(text, ContainsSubstring("torch      refused   its CPU kernel has no dropout"));
  CHECK_THAT(text, ContainsSubstring("DropoutStream::Any"));
}

TEST_CASE("explain names every backend once, fastest first, and streams its table", "[explain]") {
  const auto x = at::randn({1, 2, 4, 8});
  const auto explanation = explain(x, x, x);
  std::vector<std::string_view> backends;
  for (const auto& candidate : explanation.candidates) {
    backends.push_back(to_string(candidate.backend));
    CHECK_FALSE(candidate.reason.empty());
    if (candidate.backend == explanation.chosen) CHECK(candidate.available);
  }
  CHECK(backends == std::vector<std::string_view>{"native", "torch", "reference"});
  std::ostringstream stream;
  stream << explanation;
  CHECK(stream.str() == explanation.to_string());
}

TEST_CASE("explain runs nothing and draws nothing", "[explain]") {
  const auto x = at::randn({1, 2, 4, 8}).requires_grad_(true);
  at::manual_seed(4);
  const auto want = at::randn({8});
  at::manual_seed(4);
  explain(x, x, x, {.dropout_p = 0.5});
  CHECK(bit_equal(at::randn({8}), want));
}

TEST_CASE("explain refuses what the call would refuse, under its own name", "[explain][errors]") {
  const auto x = at::randn({1, 2, 4, 8});
  CHECK(error_of<c10::ValueError>([&] { explain(x, x, x, {.dropout_p = 2}); }) ==
        "explain: expected dropout_p in [0, 1], got 2");
}

TEST_CASE("explain counts the queries that a mask function leaves no key", "[explain]") {
  const auto x = at::randn({1, 2, 40, 8});
  const auto seen = mask_mod([](auto at) { return at.query != 7; });
  CHECK_THAT(explain(x, x, x, {}, {.block_mask = seen}).to_string(),
             ContainsSubstring("1 of 40 queries see no key, the first is query 7"));
  // The first query alone sees a key.
  const auto first = mask_mod([](auto at) { return at.query == 0; });
  CHECK_THAT(explain(x, x, x, {}, {.block_mask = first}).to_string(),
             ContainsSubstring("39 of 40 queries see no key, the first is query 1"));
}
