#include <fstream>
#include <random>

#include <catch2/catch_test_macros.hpp>

#include <attentive/text/bpe_tokenizer.h>
#include <attentive/text/tokenizer.h>

#include "base/strings.h"
#include "support/errors.h"
#include "support/files.h"
#include "text/text_support.h"

using namespace attentive;
using namespace attentive::test;
using Ids = std::vector<int64_t>;

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

TEST_CASE("Tokens of our own tokenizers, one at a time, become the text of decode", "[streaming_decoder]") {
  std::mt19937 draw(7);
  for (const auto& text : awkward_texts()) {
    for (const auto& tokenizer :
         {std::unique_ptr<Tokenizer>(new CharTokenizer(CharTokenizer::train(text))),
          std::unique_ptr<Tokenizer>(new BpeTokenizer(BpeTokenizer::train(text, 300)))}) {
      CHECK(streaming_difference(*tokenizer, tokenizer->encode(text), false) == "");
      std::vector<int64_t> vocabulary(static_cast<size_t>(tokenizer->vocab_size()));
      for (size_t id = 0; id < vocabulary.size(); ++id) vocabulary[id] = static_cast<int64_t>(id);
      for (int i = 0; i < 50; ++i) {
        CHECK(streaming_difference(*tokenizer, drawn(vocabulary, 1 + draw() % 30, draw), true) == "");
      }
    }
  }
}

TEST_CASE("A character comes when it is whole, what is none when that is known", "[streaming_decoder]") {
  const BpeTokenizer tokenizer({});
  CHECK(streamed(tokenizer, "a\xC3\xA9\xF0\x9F\x98\x80") ==
        std::vector<std::string>{"a", "", "\xC3\xA9", "", "", "", "\xF0\x9F\x98\x80", ""});
  CHECK(streamed(tokenizer, "\xE6\xBC") == std::vector<std::string>{"", "", "\xE6\xBC"});
  CHECK(streamed(tokenizer, "\xE6\xBC!") == std::vector<std::string>{"", "", "\xE6\xBC!", ""});
  CHECK(streamed(tokenizer, "\xE6\xC3\xA9") == std::vector<std::string>{"", "\xE6", "\xC3\xA9", ""});
  // Bytes that begin no character: continuation bytes, overlong forms, surrogates, values beyond U+10FFFF.
  CHECK(streamed(tokenizer, "\x80\xC0\xFF") == std::vector<std::string>{"\x80", "\xC0", "\xFF", ""});
  CHECK(streamed(tokenizer, "\xED\xA0") == std::vector<std::string>{"", "\xED\xA0", ""});
  CHECK(streamed(tokenizer, "\xF4\x90") == std::vector<std::string>{"", "\xF4\x90", ""});
  CHECK(streamed(tokenizer, "\xF0\x8F") == std::vector<std::string>{"", "\xF0\x8F", ""});
}

TEST_CASE("What the end of a text can begin is a part of a character alone", "[streaming_decoder]") {
  // By definition: some bytes, appended to these, complete a character.
  const auto can_begin = [](std::string_view part) {
    for (int first = 0x80; first < 0xC0; ++first) {
      for (const char* rest : {"", "\x80", "\x80\x80"}) {
        if (is_utf8(std::string(part) + static_cast<char>(first) + rest)) return true;
      }
    }
    return false;
  };
  std::mt19937 draw(3);
  const std::string edges =
      "a\x7F\x80\x8F\x90\x9F\xA0\xBF\xC0\xC1\xC2\xDF\xE0\xE1\xED\xEF\xF0\xF3\xF4\xF5\xFF";
  for (int i = 0; i < 20'000; ++i) {
    std::string text;
    for (size_t n = draw() % 6; n > 0; --n) text += edges[draw() % edges.size()];
    size_t expected = 0;
    for (size_t size = 1; size <= std::min<size_t>(3, text.size()); ++size) {
      const auto end = text.substr(text.size() - size);
      if (utf8_prefix(end) == 0 && can_begin(end)) expected = size;
    }
    CAPTURE(to_hex(text));
    REQUIRE(unfinished_utf8(text) == expected);
  }
}

TEST_CASE("Text that stands there already is not returned again", "[streaming_decoder]") {
  const BpeTokenizer tokenizer({});
  auto decoder = tokenizer.streaming_decoder(false);
  decoder->follow(Ids{'a', 0xE6, 0xBC});
  CHECK(decoder->push(0xA2) == "\xA2");  // E6 BC was output with the prompt
  CHECK(decoder->push('b') == "b");
  CHECK(decoder->finish().empty());
}

TEST_CASE("A streaming decoder refuses calls out of order and unknown ids, unchanged",
          "[streaming_decoder]") {
  const BpeTokenizer tokenizer({});
  auto decoder = tokenizer.streaming_decoder(true);
  const std::string unknown = "BpeTokenizer: expected ids in [0, 256), got 256";
  CHECK(value_error([&] { decoder->follow(Ids{'a', 0xC3, 256}); }) == unknown);
  decoder->follow(Ids{0xC3});
  CHECK(value_error([&] { decoder->follow(Ids{'a'}); }) ==
        "StreamingDecoder: expected follow before any other call, got it after one");
  CHECK(value_error([&] { (void)decoder->push(256); }) == unknown);
  CHECK(decoder->push(0xA9) == "\xA9");
  CHECK(decoder->finish().empty());
  CHECK(value_error([&] { (void)decoder->push('a'); }) ==
        "StreamingDecoder: expected no push after finish, got the token 97");
  CHECK(value_error([&] { (void)decoder->finish(); }) ==
        "StreamingDecoder: expected one call of finish, got another one");
}

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

TEST_CASE("BpeTokenizer learns the most frequent pairs, the smaller one first", "[bpe_tokenizer]") {
  // Pieces: "ab" once, " ab" three times, " abc" twice. Counts: (a,b) 6, (' ',a) 5, (b,c) 2.
  const auto tokenizer = BpeTokenizer::train("ab ab ab ab abc abc", 259);
  CHECK(tokenizer.merges() == std::vector<BpeTokenizer::Merge>{{'a', 'b'}, {' ', 256}, {257, 'c'}});
  CHECK(tokenizer.encode("ab abc") == std::vector<int64_t>{256, 258});
  CHECK(tokenizer.bytes(258) == " abc");
  // Equal counts: (a,b) before (b,c) before (c,d).
  CHECK(BpeTokenizer::train("abcd\nabcd", 257).merges() == std::vector<BpeTokenizer::Merge>{{'a', 'b'}});
  // No pair occurs twice any more, so the vocabulary stays smaller than requested.
  CHECK(BpeTokenizer::train("abc", 300).vocab_size() == 256);
}

TEST_CASE("BpeTokenizer joins by rank, not from the left", "[bpe_tokenizer]") {
  const BpeTokenizer tokenizer({{'b', 'c'}, {'a', 'b'}, {'a', 256}});
  CHECK(tokenizer.encode("abc") == std::vector<int64_t>{258});
  CHECK(tokenizer.encode("ab") == std::vector<int64_t>{257});
  const BpeTokenizer twins({{'a', 'a'}, {256, 256}});
  CHECK(twins.encode("aaa") == std::vector<int64_t>{256, 'a'});
  CHECK(twins.encode("aaaaaaa") == std::vector<int64_t>{257, 256, 'a'});
}

TEST_CASE("BpeTokenizer gives any bytes back, also after a file and on a foreign text", "[bpe_tokenizer]") {
  const TemporaryFolder folder;
  const auto texts = test::awkward_texts();
  for (const auto& trained : texts) {
    const auto tokenizer = BpeTokenizer::train(trained, 300);
    save_tokenizer(folder / "tokenizer.json", tokenizer);
    const auto loaded = load_tokenizer(folder / "tokenizer.json");
    for (const auto& text : texts) {
      const auto ids = tokenizer.encode(text);
      CHECK(tokenizer.decode(ids) == text);
      CHECK(loaded->encode(text) == ids);
    }
  }
}

TEST_CASE("BpeTokenizer refuses what has no meaning, by name", "[bpe_tokenizer]") {
  CHECK(value_error([] { return BpeTokenizer::train("", 300); }) ==
        "BpeTokenizer: expected a text with at least one byte, got an empty one");
  CHECK(value_error([] { return BpeTokenizer::train("a", 255); }) ==
        "BpeTokenizer: expected vocab_size of at least 256 (the bytes), got 255");
  CHECK(value_error([] {
          return BpeTokenizer({{1, 256}});
        }) == "BpeTokenizer: expected merge 0 to join two tokens below 256, got (1, 256)");
  CHECK(value_error([] {
          return BpeTokenizer({{1, 2}, {1, 2}});
        }) == "BpeTokenizer: expected distinct merges, got (1, 2) twice");
  CHECK(value_error([] { return BpeTokenizer({}).bytes(256); }) ==
        "BpeTokenizer: expected ids in [0, 256), got 256");
  // Each merge doubles the token: a small file must not cause an allocation of 2^60 bytes.
  std::vector<BpeTokenizer::Merge> doubling{{'a', 'a'}};
  for (int64_t id = 256; id < 316; ++id) doubling.emplace_back(id, id);
  CHECK(value_error([&] { return BpeTokenizer(doubling); }) ==
        "BpeTokenizer: expected tokens of at most 1024 bytes, got 2048 for merge 10");
}
