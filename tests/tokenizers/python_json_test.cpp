// Tokenizers of this package in Python's format.

#include <random>

#include <catch2/catch_test_macros.hpp>

#include <attentive/text/bpe_tokenizer.h>
#include <attentive/text/tokenizer.h>
#include <attentive/tokenizers/pretrained_tokenizer.h>

#include "base/strings.h"
#include "support/errors.h"
#include "text/text_support.h"
#include "tokenizers/small_tokenizer.h"

using namespace attentive;
using namespace attentive::test;

namespace {

// Runs of every kind, around the longest piece too, in an order that a seed draws.
std::vector<std::string> texts_of_runs(size_t count) {
  const std::vector<std::string> parts = {
      "a",  "Zb",   "7",      " ",  " ",      "\t",         "\n",
      "\v", "!",    "[",      "\\", "^",      "`",          "~",
      "-",  "\x7f", "\u00ad", "é",  "\u4f60", "\U0001f3ad", std::string(1, '\0')};
  const std::vector<size_t> lengths = {1,   1,    1,    2,    3,    341,  342,  511,
                                       512, 1021, 1022, 1023, 1024, 1025, 1026, 2048};
  std::mt19937 draw(6);
  std::vector<std::string> texts;
  for (size_t i = 0; i < count; ++i) {
    std::string text;
    const bool is_long = i % 4 == 0;
    for (size_t parts_left = 1 + draw() % 12; parts_left > 0; --parts_left) {
      const auto& part = parts[draw() % parts.size()];
      const auto times = lengths[draw() % (is_long ? lengths.size() : 5)];
      for (size_t n = 0; n < times; ++n) text += part;
    }
    texts.push_back(text);
  }
  return texts;
}

}  // namespace

TEST_CASE("Our tokenizers in Python's format give our ids", "[python_json]") {
  auto texts = texts_of_runs(400);
  for (auto& text : awkward_texts()) {
    if (is_utf8(text)) texts.push_back(text);
  }
  std::string all;
  for (const auto& text : texts) all += text;
  const auto bpe = BpeTokenizer::train(all, 420);
  const auto letters = CharTokenizer::train(all);
  const auto python_bpe = PretrainedTokenizer::parse(bpe.to_python_json());
  const auto python_letters = PretrainedTokenizer::parse(letters.to_python_json());
  CHECK(python_bpe.vocab_size() == bpe.vocab_size());
  CHECK(python_letters.vocab_size() == letters.vocab_size());
  for (const auto& text : texts) {
    const auto ids = bpe.encode(text);
    REQUIRE(python_bpe.encode(text) == ids);
    REQUIRE(python_bpe.encode_with_special_tokens(text) == ids);
    REQUIRE(python_bpe.decode(ids) == text);
    REQUIRE(python_letters.encode(text) == letters.encode(text));
    REQUIRE(python_letters.decode(letters.encode(text)) == text);
  }
}

TEST_CASE("Ids of our tokenizers equal those that Python recorded", "[python_json]") {
  const auto records = read_json(tokenizer_data("own.expected.json"));
  const auto bpe = parse_tokenizer(records["bpe"].dump()), letters = parse_tokenizer(records["char"].dump());
  REQUIRE(records["texts"].size() == 60);
  for (const auto& record : records["texts"]) {
    const auto text = record["text"].get<std::string>();
    REQUIRE(bpe->encode(text) == record["bpe"].get<std::vector<int64_t>>());
    if (!record["char"].is_null()) {
      REQUIRE(letters->encode(text) == record["char"].get<std::vector<int64_t>>());
    } else {  // Python refuses a character that the vocabulary lacks
      CHECK(value_error([&] { letters->encode(text); }).find("CharTokenizer") != std::string::npos);
    }
  }
}

TEST_CASE("What Python's format cannot express is refused by name", "[python_json]") {
  const BpeTokenizer twice({{'a', 'b'}, {'b', 'c'}, {256, 'c'}, {'a', 257}});
  CHECK(
      value_error([&] { (void)twice.to_python_json(); }) ==
      "BpeTokenizer: tokens 258 and 259 stand for the same bytes, which Python's vocabulary cannot express");
  CHECK(value_error([] { (void)CharTokenizer::train("ab\xff").to_python_json(); }) ==
        "CharTokenizer: token 2, the byte 0xff, belongs to no character, which Python's texts consist of");
  class Other final : public Tokenizer {
    int64_t vocab_size() const override { return 1; }
    std::vector<int64_t> encode(std::string_view) const override { return {}; }
    std::string_view bytes(int64_t) const override { return {}; }
    std::string to_json() const override { return {}; }
  };
  CHECK(value_error([] { (void)Other().to_python_json(); }) ==
        "Tokenizer: this tokenizer has no form that Python reads");
}
