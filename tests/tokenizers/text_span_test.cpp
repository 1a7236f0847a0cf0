#include <catch2/catch_test_macros.hpp>

#include <attentive/tokenizers/pretrained_tokenizer.h>

#include "support/errors.h"
#include "tokenizers/print_encoding.h"

using namespace attentive;
using namespace attentive::test;
using Spans = std::vector<TextSpan>;

TEST_CASE("Spans of characters become spans of bytes", "[text_span]") {
  const std::string text = "aé漢😀b";  // 1, 2, 3, 4 and 1 bytes
  CHECK(byte_spans(text, {{0, 5}, {4, 5}, {1, 2}, {2, 4}, {3, 3}, {5, 5}, {0, 0}}) ==
        Spans{{0, 11}, {10, 11}, {1, 3}, {3, 10}, {6, 6}, {11, 11}, {0, 0}});
  CHECK(byte_spans("abc", {{1, 2}, {3, 3}}) == Spans{{1, 2}, {3, 3}});
  CHECK(byte_spans("", {{0, 0}}) == Spans{{0, 0}});
  CHECK(byte_spans(text, {}).empty());
}

TEST_CASE("A span that is not in the text is refused with its place", "[text_span]") {
  const auto refused = [](std::string_view text, const TextSpan& span) {
    return value_error([&] { (void)byte_spans(text, {{0, 0}, span}); });
  };
  CHECK(refused("é", {0, 2}) == "byte_spans: expected spans of a text of 1 characters, got [0, 2) at 1");
  CHECK(refused("ab", {-1, 1}) == "byte_spans: expected spans of a text of 2 characters, got [-1, 1) at 1");
  CHECK(refused("ab", {2, 1}) == "byte_spans: expected spans of a text of 2 characters, got [2, 1) at 1");
  CHECK(refused("a\xFF", {0, 1}) == "byte_spans: expected text in UTF-8, got a bad byte at offset 1");
}
