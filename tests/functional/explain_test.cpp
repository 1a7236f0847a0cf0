#include <sstream>

#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <attentive/functional/explain.h>
#include <attentive/functional/named_masks.h>
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

TEST_CASE("explain counts the tiles that a mask function empties and fills", "[explain][block_mask]") {
  const auto x = at::randn({2, 2, 384, 8});
  auto documents = at::zeros({384}, at::kLong);
  documents.slice(0, 256).fill_(1);
  const auto mask = document_mask(documents);
  const std::string note =
      "mask function document_mask: 4 of 9 tiles of 128 x 128 pairs are skipped, and 5 need no test";
  const auto notes = [&](const at::Tensor& q, const BlockMask& given, Backend backend = Backend::Auto) {
    return explain(q, q, q, {.backend = backend}, {.block_mask = given}).notes;
  };
  CHECK(notes(x, mask) == std::vector{note});
  CHECK(notes(x, BlockMask::kept(mask, 2, 2, 384, 384)) == std::vector{note});
  CHECK(notes(x, mask, Backend::Reference) == std::vector<std::string>{"mask function document_mask"});
  CHECK(notes(x.to(at::kMeta), prefix_lm_mask(3)).empty());
  CHECK(notes(x, {}).empty());
  // The call classifies no tiles of so few tokens, unless they are kept.
  const auto few = x.slice(2, 0, 255);
  CHECK(notes(few, prefix_lm_mask(0)) ==
        std::vector<std::string>{
            "mask function prefix_lm_mask(0): every pair is tested, since tiles are skipped from 256 queries "
            "and keys on"});
  CHECK(notes(few, BlockMask::kept(prefix_lm_mask(0), 1, 1, 255, 255)) ==
        std::vector<std::string>{"mask function prefix_lm_mask(0): 1 of 4 tiles of 128 x 128 pairs are "
                                 "skipped, and 1 need no test"});
}

TEST_CASE("explain names a score function", "[explain]") {
  const auto x = at::randn({1, 2, 4, 8});
  const auto score = score_mod([](auto s, auto) { return 2.0f * s; }, "twice");
  for (const auto& q : {x, x.to(at::kMeta)})
    CHECK(explain(q, q, q, {}, {.score = score}).notes == std::vector<std::string>{"score function twice"});
}

TEST_CASE("explain counts the queries that a mask function leaves no key", "[explain]") {
  const auto x = at::randn({1, 2, 40, 8});
  const auto seen = mask_mod([](auto pair) { return pair.query != 7; });
  CHECK_THAT(explain(x, x, x, {}, {.block_mask = seen}).to_string(),
             ContainsSubstring("1 of 40 queries see no key, the first is query 7"));
  // The first query alone sees a key.
  const auto first = mask_mod([](auto pair) { return pair.query == 0; });
  CHECK_THAT(explain(x, x, x, {}, {.block_mask = first}).to_string(),
             ContainsSubstring("39 of 40 queries see no key, the first is query 1"));
}
