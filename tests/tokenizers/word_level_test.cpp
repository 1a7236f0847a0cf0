#include <catch2/catch_test_macros.hpp>

#include <attentive/text/tokenizer.h>
#include <attentive/tokenizers/pretrained_tokenizer.h>

#include "support/errors.h"
#include "tokenizers/small_tokenizer.h"

using namespace attentive;
using namespace attentive::test;
using Ids = std::vector<int64_t>;

namespace {

nlohmann::json words() {
  return nlohmann::json::parse(R"({
    "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
    "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": null, "decoder": null,
    "model": {"type": "WordLevel", "vocab": {"<unk>": 0, "the": 1, "cat": 2}, "unk_token": "<unk>"}})");
}

}  // namespace

TEST_CASE("WordLevel has a token a piece, and one for what it lacks", "[word_level]") {
  auto document = words();
  const auto tokenizer = PretrainedTokenizer::parse(document.dump());
  CHECK(tokenizer.encode("the  cat the dog") == Ids{1, 2, 1, 0});
  CHECK(tokenizer.decode(Ids{1, 2}) == "the cat");
  document["model"]["unk_token"] = "none";
  const auto strict = PretrainedTokenizer::parse(document.dump());
  CHECK(strict.encode("cat") == Ids{2});
  CHECK(value_error([&] { strict.encode("cat dog"); }) ==
        "PretrainedTokenizer: the text needs the unknown token \"none\", which the vocabulary lacks");
  document["model"]["extra"] = 1;
  CHECK(value_error([&] { PretrainedTokenizer::parse(document.dump()); }).find("extra") != std::string::npos);
}

TEST_CASE("A training text is neither cut nor filled", "[pretrained_tokenizer]") {
  auto document = small_document();
  const std::string text(50, 'b');
  const auto limited = PretrainedTokenizer::parse(document.dump());
  CHECK(limited.encode(text).size() == 20);
  document["truncation"] = nullptr;
  document["padding"] = nullptr;
  const auto free = PretrainedTokenizer::parse(document.dump());
  CHECK(limited.encode_whole(text) == free.encode(text));
  CHECK(limited.encode_whole(text).size() == 50);
  document["padding"] = {{"strategy", {{"Fixed", 90}}},
                         {"direction", "Right"},
                         {"pad_to_multiple_of", nullptr},
                         {"pad_id", 0},
                         {"pad_type_id", 0},
                         {"pad_token", "x"}};
  CHECK(PretrainedTokenizer::parse(document.dump()).encode_whole(text) == free.encode(text));
}

TEST_CASE("parse_any_tokenizer tells the formats apart by content", "[pretrained_tokenizer]") {
  CHECK(parse_any_tokenizer(words().dump())->encode("cat") == Ids{2});
  CHECK(parse_any_tokenizer(CharTokenizer::train("cat").to_json())->encode("cat") == Ids{1, 0, 2});
  for (const auto* text : {"[]", "", "3", R"([{"model": 1}])", R"("model")"}) {
    CHECK(value_error([&] { parse_any_tokenizer(text); }) == "parse_tokenizer: expected a JSON object");
  }
  const auto type = [](const char* text) { return value_error([&] { parse_any_tokenizer(text); }); };
  CHECK(type(R"({"a": {"model": 1}, "b": [[0], {}], "type": "model"})") ==
        "parse_tokenizer: expected \"type\" to be \"char\" or \"bpe\", got \"model\"");
  const std::string member = "PretrainedTokenizer: the document: the field \"a\" is not supported";
  CHECK(type(R"({"a": {"b": [1]}, "c": {}, "model": 1})") == member);
  CHECK(type(R"({"a": [{"b": 1}], "model": 1, "type": "bpe"})") == member);
  // The format is known by then, whatever follows.
  CHECK(type(R"({"model": {"vocab")") == "PretrainedTokenizer: expected JSON in UTF-8");
}
