#include <fstream>

#include <catch2/catch_test_macros.hpp>

#include <attentive/text/bpe_tokenizer.h>
#include <attentive/text/tokenizer.h>

#include "support/errors.h"
#include "support/temporary_folder.h"

using namespace attentive;
using attentive::test::value_error;

TEST_CASE("Tokenizer files that are damaged are refused by name", "[tokenizer]") {
  const auto refused = [](const char* json) { return value_error([&] { return parse_tokenizer(json); }); };
  CHECK(refused("") == "parse_tokenizer: expected a JSON object");
  CHECK(refused("[]") == "parse_tokenizer: expected a JSON object");
  CHECK(refused("{}") == "parse_tokenizer: expected \"type\" to be \"char\" or \"bpe\", got none");
  CHECK(refused(R"({"type": "word"})") ==
        "parse_tokenizer: expected \"type\" to be \"char\" or \"bpe\", got \"word\"");
  CHECK(refused(R"({"type": "char"})") == "parse_tokenizer: expected an array \"characters\"");
  CHECK(refused(R"({"type": "char", "characters": [1]})") ==
        "parse_tokenizer: expected characters as strings, got 1");
  CHECK(refused(R"({"type": "char", "characters": ["6"]})") ==
        "parse_tokenizer: expected an even number of hexadecimal digits, got \"6\"");
  CHECK(refused(R"({"type": "char", "characters": ["zz"]})") ==
        "parse_tokenizer: expected lower-case hexadecimal digits, got \"zz\"");
  CHECK(refused(R"({"type": "bpe", "merges": [[1]]})") ==
        "parse_tokenizer: expected merges as pairs of integers, got [1]");
  const TemporaryFolder folder;
  CHECK(value_error([&] { return load_tokenizer(folder / "none.json"); }) ==
        "load_tokenizer: cannot open " + (folder / "none.json").string() + ": No such file or directory");
}

TEST_CASE("A tokenizer's JSON says which kind it is", "[tokenizer]") {
  const auto letters = CharTokenizer::train("abc");
  const auto pairs = BpeTokenizer::train("ab ab ab", 258);
  CHECK(dynamic_cast<CharTokenizer*>(parse_tokenizer(letters.to_json()).get()) != nullptr);
  CHECK(dynamic_cast<BpeTokenizer*>(parse_tokenizer(pairs.to_json()).get()) != nullptr);
  CHECK(parse_tokenizer(pairs.to_json())->to_json() == pairs.to_json());
}

TEST_CASE("A tokenizer's file is replaced as a whole, and its errors name it", "[tokenizer]") {
  const TemporaryFolder folder;
  const auto path = folder / "tokenizer.json";
  save_tokenizer(path, CharTokenizer::train("abc"));
  save_tokenizer(path, CharTokenizer::train("abcd"));
  CHECK(load_tokenizer(path)->vocab_size() == 4);
  CHECK(value_error([&] {
          save_tokenizer(folder / "none" / "tokenizer.json", CharTokenizer::train("abc"));
        }).starts_with("save_tokenizer: "));
  std::ofstream(path) << R"({"type": "word"})";
  CHECK(value_error([&] { load_tokenizer(path); }) ==
        "load_tokenizer: " + path.string() +
            ": parse_tokenizer: expected \"type\" to be \"char\" or \"bpe\", got \"word\"");
}

TEST_CASE("decode joins the bytes of its tokens and refuses others", "[tokenizer]") {
  const auto tokenizer = CharTokenizer::train("abc");
  CHECK(tokenizer.decode({}).empty());
  CHECK(tokenizer.decode(std::vector<int64_t>{2, 0, 1}) == "cab");
  CHECK(value_error([&] {
          (void)tokenizer.decode(std::vector<int64_t>{0, 3});
        }) == "CharTokenizer: expected ids in [0, 3), got 3");
}
