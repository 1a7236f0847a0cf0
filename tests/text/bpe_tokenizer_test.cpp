#include <catch2/catch_test_macros.hpp>

#include <attentive/text/bpe_tokenizer.h>

#include "support/errors.h"
#include "support/temporary_folder.h"
#include "text/text_support.h"

using namespace attentive;
using attentive::test::value_error;

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
