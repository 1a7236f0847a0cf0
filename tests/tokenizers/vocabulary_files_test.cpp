#include "tokenizers/convert/vocabulary_files.h"

#include <catch2/catch_test_macros.hpp>

#include "base/refusal.h"
#include "support/refusal.h"

using namespace attentive;
using namespace attentive::tokenizers;
using attentive::test::refusal_of;
using Json = nlohmann::json;

namespace {

std::string refused_lines(const std::string& text) {
  return refusal_of([&] { parse_vocab_txt(text); });
}
std::string refused_merges(const std::string& text) {
  return refusal_of([&] { parse_merges_txt(text, Json{{"a", 0}, {"b", 1}, {"ab", 2}}); });
}

}  // namespace

TEST_CASE("A line of vocab.txt is a token", "[vocabulary_files]") {
  CHECK(parse_vocab_txt("a\nb\n") == Json{{"a", 0}, {"b", 1}});
  CHECK(parse_vocab_txt("a\r\nb") == Json{{"a", 0}, {"b", 1}});
  CHECK(parse_vocab_txt(" a \u00a0\n\u3000\nb\t") == Json{{" a", 0}, {"", 1}, {"b", 2}});
  CHECK(parse_vocab_txt("a\nb\na\n\n\n") == Json{{"a", 2}, {"b", 1}, {"", 4}});
  CHECK(refused_lines("") == "expected a token a line, got no line");
  CHECK(refused_lines("a\n\xc3") == "expected UTF-8, got a bad byte at offset 2");
  CHECK(refused_lines(std::string(10'000'000, '\n')) == "expected at most 4194304 lines");
}

TEST_CASE("vocab.json gives each token an id of its own", "[vocabulary_files]") {
  const auto refused = [](const char* text) { return refusal_of([&] { parse_vocab_json(text); }); };
  CHECK(parse_vocab_json(R"({"a": 3, "b": 1})") == Json{{"a", 3}, {"b", 1}});
  CHECK(refused("{}") == "the document: expected an object of tokens and ids, got an object");
  CHECK(refused("[1]") == "the document: expected an object of tokens and ids, got an array of 1");
  CHECK(refused(R"({"a": 1, "b": 1})") == "b: expected an id that no other token has, got 1");
  CHECK(refused(R"({"a": -1})") == "a: expected an integer from 0 to 2147483647, got -1");
  CHECK(refused(R"({"a": "x"})") == "a: expected an integer from 0 to 2147483647, got \"x\"");
  CHECK(refused("{\"a\": ") == "expected JSON in UTF-8");
}

TEST_CASE("A line of merges.txt is two tokens of the vocabulary", "[vocabulary_files]") {
  CHECK(parse_merges_txt("#version: 0.2\na b\n", Json{{"a", 0}, {"b", 1}, {"ab", 2}}) ==
        Json::parse(R"([["a", "b"]])"));
  CHECK(refused_merges("a b\n\n") == "line 2: expected two tokens with a space between them, got \"\"");
  CHECK(refused_merges("a  b") == "line 1: expected two tokens with a space between them, got \"a  b\"");
  CHECK(refused_merges("a") == "line 1: expected two tokens with a space between them, got \"a\"");
  CHECK(refused_merges("b a") == "line 1: expected tokens of the vocabulary, which lacks \"ba\"");
  CHECK(refused_merges("a c") == "line 1: expected tokens of the vocabulary, which lacks \"c\"");
  CHECK(refused_merges("a\xff") == "expected UTF-8, got a bad byte at offset 1");
}
