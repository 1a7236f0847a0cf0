#include <bit>
#include <random>

#include <catch2/catch_test_macros.hpp>

#include "base/files.h"
#include "base/refusal.h"
#include "support/errors.h"
#include "tokenizers/convert/vocabulary_files.h"
#include "tokenizers/small_tokenizer.h"

using namespace attentive;
using namespace attentive::tokenizers;
using attentive::test::refusal_of;

namespace {

std::string number(uint64_t value) {
  std::string bytes;
  for (; value >= 128; value >>= 7) bytes += static_cast<char>(value | 128);
  return bytes + static_cast<char>(value);
}
std::string numeral(uint64_t field, uint64_t value) {
  return number(field << 3) + number(value);
}
std::string text(uint64_t field, const std::string& value) {
  return number(field << 3 | 2) + number(value.size()) + value;
}
std::string real(uint64_t field, float value) {
  auto bits = std::bit_cast<uint32_t>(value);
  auto bytes = number(field << 3 | 5);
  for (int i = 0; i < 4; ++i, bits >>= 8) bytes += static_cast<char>(bits & 255);
  return bytes;
}
std::string piece(const std::string& token, float score = 0, uint64_t kind = 1) {
  return text(1, text(1, token) + real(2, score) + numeral(3, kind));
}

std::string refused_model(const std::string& bytes) {
  return refusal_of([&] { return parse_sentence_piece_model(bytes); });
}

}  // namespace

TEST_CASE("A SentencePiece model is read, whatever else its file holds", "[sentence_piece_model]") {
  const auto trainer = numeral(3, 2) + numeral(4, 8000) + numeral(35, 1) + numeral(40, 3) +
                       numeral(41, ~uint64_t{0}) + numeral(42, 1) + text(45, "<u>") + text(46, "<b>") +
                       text(47, "<e>");
  const auto file =
      piece("<u>", 0, 2) + text(9, "later") + piece("\u2581a", -1.5F) + real(7, 1) + text(2, trainer) +
      text(3, text(1, "nmt") + text(2, std::string("\0\1", 2)) + numeral(3, 0) + numeral(5, 0)) +
      number(9 << 3 | 1) + "12345678" + text(1, text(1, "b")) + piece("<0x0A>", 0, 6);
  const auto model = parse_sentence_piece_model(file);
  REQUIRE(model.pieces.size() == 4);
  CHECK(model.pieces[0].kind == PieceKind::Unknown);
  CHECK(model.pieces[1].text == "\u2581a");
  CHECK(model.pieces[1].score == -1.5F);
  CHECK(model.pieces[2].kind == PieceKind::Normal);
  CHECK(model.pieces[3].kind == PieceKind::Byte);
  CHECK_FALSE(model.is_unigram);
  CHECK(model.byte_fallback);
  CHECK(model.unknown_id == 3);
  CHECK(model.begin_id == -1);
  CHECK(model.end_id == 1);
  CHECK(model.unknown + model.begin + model.end == "<u><b><e>");
  CHECK(model.charsmap == std::string("\0\1", 2));
  CHECK_FALSE(model.add_dummy_prefix);
  CHECK(model.remove_extra_whitespaces);
  CHECK_FALSE(model.escape_whitespaces);
}

TEST_CASE("What a SentencePiece model leaves out has the format's values", "[sentence_piece_model]") {
  const auto model = parse_sentence_piece_model(piece("a"));
  CHECK(model.is_unigram);
  CHECK_FALSE(model.byte_fallback);
  CHECK(model.unknown_id == 0);
  CHECK(model.begin_id == 1);
  CHECK(model.end_id == 2);
  CHECK(model.unknown + model.begin + model.end == "<unk><s></s>");
  CHECK(model.charsmap.empty());
  CHECK(model.add_dummy_prefix);
  CHECK(model.remove_extra_whitespaces);
  CHECK(model.escape_whitespaces);
  CHECK_FALSE(parse_sentence_piece_model(piece("a") + text(3, numeral(4, 0))).remove_extra_whitespaces);
}

TEST_CASE("What is no SentencePiece model is refused with its place", "[sentence_piece_model]") {
  const std::string a = piece("a");
  CHECK(refused_model("") == "pieces: expected the tokens of a SentencePiece model, got none");
  CHECK(refused_model(a + "\x0a") ==
        "expected the rest of a number of a SentencePiece model at offset 13, got other bytes");
  CHECK(refused_model(a + "\x0a\x80") ==
        "expected the rest of a number of a SentencePiece model at offset 14, got other bytes");
  CHECK(refused_model(a + "\x0a\x05") ==
        "expected a length within its message of a SentencePiece model at offset 14, got other bytes");
  CHECK(refused_model("\x0a" + number(~uint64_t{0})) ==
        "expected a length within its message of a SentencePiece model at offset 11, got other bytes");
  CHECK(refused_model(a + "\x0a" + std::string(11, '\x80')) ==
        "expected a number of at most ten bytes of a SentencePiece model at offset 23, got other bytes");
  CHECK(refused_model(std::string("\0\0", 2)) ==
        "expected a field's number of a SentencePiece model at offset 1, got other bytes");
  CHECK(refused_model("\x0b") ==
        "expected a number, a text or a message of a SentencePiece model at offset 1, got other bytes");
  CHECK(refused_model(text(1, real(2, 1).substr(0, 4))) ==
        "expected the rest of a number of a SentencePiece model at offset 3, got other bytes");
  CHECK(refused_model(numeral(1, 1)) ==
        "the model: expected another type of value for a SentencePiece model at offset 0");
  CHECK(refused_model(text(1, numeral(1, 1))) ==
        "pieces.piece: expected another type of value for a SentencePiece model at offset 2");
  CHECK(refused_model(piece("\xff")) == "pieces.piece: expected UTF-8 at offset 2");
  CHECK(refused_model(piece("a", std::bit_cast<float>(0x7fc00000U))) ==
        "pieces.score: expected a finite number at offset 5");
  CHECK(refused_model(piece("a", 0, 7)) == "pieces.type: expected 1 to 6, got 7 at offset 10");
  CHECK(refused_model(piece(std::string(513, 'a'))) ==
        "pieces.piece: expected at most 512 bytes, got 513 at offset 3");
  CHECK(refused_model(a + text(2, numeral(3, 5))) == "trainer_spec.model_type: expected 1 to 4, got 5");
  CHECK(refused_model("{\"model\": 1}") != "no error");
}

TEST_CASE("More tokens than any model has are refused", "[sentence_piece_model]") {
  std::string many;
  for (size_t n = 0; n <= size_t{1} << 22; ++n) many += std::string("\x0a\0", 2);
  CHECK(refused_model(many) == "pieces: expected at most 4194304 tokens");
}

TEST_CASE("Damaged SentencePiece models are read or refused", "[sentence_piece_model]") {
  const auto whole = read_file(test::tokenizer_data("folders/t5/spiece.model"));
  std::mt19937 draw(1);
  size_t refusals = 0;
  for (int n = 0; n < 2000; ++n) {
    auto bytes = whole;
    for (int i = 0; i < 1 + n % 4; ++i) bytes[draw() % bytes.size()] = static_cast<char>(draw());
    if (n % 3 == 0) bytes.resize(draw() % bytes.size());
    refusals += refused_model(bytes) != "no error";
  }
  CHECK(refusals > 500);
}
