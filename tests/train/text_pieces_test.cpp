#include <fstream>
#include <random>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include <attentive/text/bpe_tokenizer.h>
#include <attentive/text/tokenizer.h>

#include "base/refusal.h"
#include "base/strings.h"
#include "support/temporary_folder.h"
#include "train/token_file_header.h"

using namespace attentive;
using Pieces = std::vector<std::string>;

namespace {

// The pieces of a text; checks their places.
Pieces pieces_of(const std::string& text, size_t most) {
  const TemporaryFolder folder;
  std::ofstream(folder / "text", std::ios::binary) << text;
  TextPieces reader(folder / "text", most);
  CHECK(reader.size() == text.size());
  Pieces pieces;
  uint64_t begin = 0;
  for (auto piece = reader.next(); !piece.empty(); piece = reader.next()) {
    CHECK(reader.begin() == begin);
    begin += piece.size();
    pieces.emplace_back(piece);
  }
  CHECK(reader.next().empty());
  return pieces;
}

template <class T>
std::vector<int64_t> encode_all(const T& tokenizer, const Pieces& pieces) {
  std::vector<int64_t> ids;
  for (const auto& piece : pieces) {
    const auto more = tokenizer.encode(piece);
    ids.insert(ids.end(), more.begin(), more.end());
  }
  return ids;
}

// A text of words, signs and line ends, with characters of one to four bytes. `odd`: also with stray bytes.
std::string drawn_text(unsigned seed, size_t count, bool odd) {
  std::mt19937 draw(seed);
  static const Pieces parts{"a",    "word",   "7",      ".",          " ",    " ",  "\n",      "\r\n",
                            "\n\n", "\u00e9", "\u20ac", "\U0001f600", "  in", "\t", "e\u0301", "\u3000"};
  static const Pieces stray{"\xff", "\x80", "\xe2\x82", std::string(1, '\0'), "\xf0\x9f"};
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    const auto& from = odd && draw() % 4 == 0 ? stray : parts;
    text += from[draw() % from.size()];
  }
  return text;
}

}  // namespace

TEST_CASE("A text is cut before a line, else before a word, else between characters", "[text_pieces]") {
  CHECK(pieces_of("one\ntwo\nthree\n", 9) == Pieces{"one\ntwo\n", "three\n"});
  CHECK(pieces_of("one\ntwo\n", 8) == Pieces{"one\ntwo\n"});
  // The last line end may belong to the white space of the next piece.
  CHECK(pieces_of("one\ntwo\n", 7) == Pieces{"one\n", "two\n"});
  CHECK(pieces_of("one\ntwo\n\n x", 10) == Pieces{"one\n", "two\n\n x"});
  CHECK(pieces_of("one\r\ntwo\r\n", 9) == Pieces{"one\r\n", "two\r\n"});
  CHECK(pieces_of("one two three", 9) == Pieces{"one two", " three"});
  CHECK(pieces_of("one two  three", 11) == Pieces{"one", " two  three"});
  CHECK(pieces_of("one\ntwo three", 12) == Pieces{"one\n", "two three"});
  CHECK(pieces_of("abcdefghij", 4) == Pieces{"abcd", "efgh", "ij"});
  CHECK(pieces_of("ab\u20ac\u20ac", 4) == Pieces{"ab", "\u20ac", "\u20ac"});
  CHECK(pieces_of("\U0001f600\U0001f601", 4) == Pieces{"\U0001f600", "\U0001f601"});
  CHECK(pieces_of("      ", 4) == Pieces{"    ", "  "});
  CHECK(pieces_of(" abcd", 4) == Pieces{" abc", "d"});
  CHECK(pieces_of("\x80\x80\x80\x80\x80", 4) == Pieces{"\x80\x80\x80\x80", "\x80"});
  CHECK(pieces_of("x", 4) == Pieces{"x"});
  const TemporaryFolder folder;
  std::ofstream(folder / "empty");
  CHECK_THROWS_AS(TextPieces(folder / "empty", 4), Refusal);
  CHECK_THROWS_AS(TextPieces(folder / "none", 4), Refusal);
}

TEST_CASE("Pieces join to their text and are whole characters", "[text_pieces]") {
  for (unsigned seed = 0; seed < 40; ++seed) {
    const bool odd = seed % 2 == 1;
    const auto text = drawn_text(seed, 60, odd);
    for (const size_t most : {4U, 5U, 7U, 16U, 40U, 1000U}) {
      const auto pieces = pieces_of(text, most);
      std::string joined;
      for (const auto& piece : pieces) {
        CHECK(piece.size() <= most);
        if (!odd) CHECK(is_utf8(piece));
        joined += piece;
      }
      CHECK(joined == text);
      CHECK((most < text.size()) == (pieces.size() > 1));
    }
  }
}

TEST_CASE("A CharTokenizer gives pieces the ids of the whole text", "[text_pieces]") {
  for (unsigned seed = 0; seed < 40; ++seed) {
    const auto text = drawn_text(seed, 60, seed % 2 == 1);
    const auto tokenizer = CharTokenizer::train(text);
    for (const size_t most : {4U, 5U, 7U, 16U, 40U}) {
      CHECK(encode_all(tokenizer, pieces_of(text, most)) == tokenizer.encode(text));
    }
  }
}

TEST_CASE("A BpeTokenizer gives pieces that end where words do the ids of the whole text", "[text_pieces]") {
  for (unsigned seed = 0; seed < 40; ++seed) {
    std::string text;
    for (size_t line = 0; line < 12; ++line)
      text += drawn_text(100 * seed + line, 8, seed % 2 == 1) + "x\nend of it";
    const auto tokenizer = BpeTokenizer::train(text, 300);
    for (const size_t most : {64U, 90U, 200U}) {
      CHECK(encode_all(tokenizer, pieces_of(text, most)) == tokenizer.encode(text));
    }
  }
}
