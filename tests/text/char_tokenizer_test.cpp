#include <catch2/catch_test_macros.hpp>

#include <attentive/text/tokenizer.h>

#include "support/errors.h"
#include "support/temporary_folder.h"
#include "text/text_support.h"

using namespace attentive;
using attentive::test::value_error;

TEST_CASE("CharTokenizer numbers the characters as Python's sorted(set(text)) does", "[char_tokenizer]") {
  const auto tokenizer = CharTokenizer::train("hello");
  CHECK(tokenizer.vocab_size() == 4);
  CHECK(tokenizer.encode("hole") == std::vector<int64_t>{1, 3, 2, 0});
  // 'a' < U+00E9 < U+6F22 < U+1F3AD, in code points and in bytes
  const auto wide = CharTokenizer::train(
      "\xf0\x9f\x8e\xad\xe6\xbc\xa2\xc3\xa9"
      "a");
  CHECK(wide.vocab_size() == 4);
  CHECK(wide.encode("a\xc3\xa9\xe6\xbc\xa2\xf0\x9f\x8e\xad") == std::vector<int64_t>{0, 1, 2, 3});
}

TEST_CASE("CharTokenizer gives any bytes back, also after a file", "[char_tokenizer]") {
  const TemporaryFolder folder;
  for (const auto& text : test::awkward_texts()) {
    const auto tokenizer = CharTokenizer::train(text);
    const auto ids = tokenizer.encode(text);
    CHECK(tokenizer.decode(ids) == text);
    save_tokenizer(folder / "tokenizer.json", tokenizer);
    const auto loaded = load_tokenizer(folder / "tokenizer.json");
    CHECK(loaded->vocab_size() == tokenizer.vocab_size());
    CHECK(loaded->encode(text) == ids);
    CHECK(loaded->decode(ids) == text);
  }
}

TEST_CASE("CharTokenizer refuses what it cannot spell, by name", "[char_tokenizer]") {
  CHECK(value_error([] { return CharTokenizer::train(""); }) ==
        "CharTokenizer: expected a text with at least one character, got an empty one");
  const auto tokenizer = CharTokenizer::train("abc");
  CHECK(value_error([&] { return tokenizer.encode("abz"); }) ==
        "CharTokenizer: expected characters of its vocabulary of 3, got \"z\" at byte 2");
  CHECK(value_error([&] { return tokenizer.encode("\xff"); }) ==
        "CharTokenizer: expected characters of its vocabulary of 3, got byte 0xff at byte 0");
  CHECK(value_error([&] { return tokenizer.bytes(3); }) == "CharTokenizer: expected ids in [0, 3), got 3");
  CHECK(value_error([&] { return tokenizer.bytes(-1); }) == "CharTokenizer: expected ids in [0, 3), got -1");
  CHECK(value_error([] {
          return CharTokenizer({"a", "a"});
        }) == "CharTokenizer: expected distinct characters, got \"a\" twice");
  CHECK(value_error([] { return CharTokenizer({"ab"}); }) ==
        "CharTokenizer: expected single characters, got the bytes \"6162\"");
}
