#include "tokenizers/pieces.h"

#include <catch2/catch_test_macros.hpp>

#include "tokenizers/normalizers.h"
#include "tokenizers/pre_tokenizers.h"
#include "tokenizers/small_tokenizer.h"

using namespace attentive::tokenizers;
using Json = nlohmann::json;
using Origins = std::vector<Origin>;

namespace {

// A text that is given, with origins; it begins at byte `begin` of a longer one.
Piece given(std::string_view text, Pieces& pieces, uint32_t begin = 0) {
  auto origins = origins_of(text);
  for (auto& origin : origins) origin = {origin.begin + begin, origin.end + begin};
  return {text, -1, pieces.keep(std::move(origins)), begin};
}

Origins origins_of_piece(const Piece& piece) {
  return {piece.origins, piece.origins + piece.text.size()};
}

Piece normalized(const char* json, const Piece& piece, Pieces& pieces) {
  const auto document = nlohmann::json::parse(json);
  return parse_normalizer(JsonView(document))(piece, pieces);
}

}  // namespace

TEST_CASE("A pattern may match nothing, before, between and after the characters", "[pieces]") {
  const auto split = [](const Json& pattern, const char* behavior, bool invert) {
    const Json json = {{"type", "Split"}, {"pattern", pattern}, {"behavior", behavior}, {"invert", invert}};
    Pieces pieces;
    pieces.list = {given("aébbc", pieces)};
    parse_pre_tokenizer(JsonView(json))(pieces);
    std::vector<std::string> texts;
    for (const auto& piece : pieces.list) texts.emplace_back(piece.text);
    return texts;
  };
  using Texts = std::vector<std::string>;
  const Json nothing = {{"String", ""}}, some = {{"Regex", "b*"}};
  for (const auto* const behavior : {"Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"}) {
    for (const bool invert : {false, true}) {
      CAPTURE(behavior, invert);
      CHECK(split(nothing, behavior, invert) == Texts{"a", "é", "b", "b", "c"});
    }
  }
  CHECK(split(nothing, "Removed", false) == Texts{"a", "é", "b", "b", "c"});
  CHECK(split(nothing, "Removed", true).empty());
  // The words of Python's tokenizers.
  CHECK(split(some, "Isolated", false) == Texts{"a", "é", "bb", "c"});
  CHECK(split(some, "Removed", false) == Texts{"a", "é", "c"});
  CHECK(split(some, "Removed", true) == Texts{"bb"});
  CHECK(split(some, "MergedWithPrevious", false) == Texts{"a", "ébb", "c"});
  CHECK(split(some, "MergedWithPrevious", true) == Texts{"a", "é", "bbc"});
  CHECK(split(some, "MergedWithNext", false) == Texts{"a", "é", "bbc"});
  CHECK(split(some, "MergedWithNext", true) == Texts{"a", "ébb", "c"});
  CHECK(split(some, "Contiguous", true) == Texts{"a", "é", "bb", "c"});
  Pieces pieces;
  const auto replaced = [&](const char* text) {
    return normalized(R"({"type": "Replace", "pattern": {"String": ""}, "content": "-"})",
                      given(text, pieces), pieces);
  };
  CHECK(replaced("aéb").text == "-a-é-b-");
  CHECK(origins_of_piece(replaced("aé")) == Origins{{0, 0}, {0, 1}, {0, 1}, {1, 3}, {1, 3}, {1, 3}});
  CHECK(replaced("").text.empty());
}

TEST_CASE("A rewritten piece knows where its bytes come from", "[pieces]") {
  Pieces pieces;
  const auto piece = given("aé漢bc", pieces, 10);
  Rewrite rewrite(piece, pieces);
  rewrite.put('<', 1);   // before everything: no character stands before it
  rewrite.skip(1);       // a
  rewrite.put(U'É', 0);  // in the place of é
  rewrite.put('-', 1);   // from where é comes from
  rewrite.put('k', -1);  // in the place of 漢, and b goes
  rewrite.keep(1);
  rewrite.put('>', 0);  // there is no old character left
  const auto done = rewrite.done();
  CHECK(done.text == "<É-kc>");
  CHECK(origins_of_piece(done) ==
        Origins{{10, 10}, {11, 13}, {11, 13}, {11, 13}, {13, 16}, {17, 18}, {17, 18}});
  CHECK(done.begin == 10);
}

TEST_CASE("A piece without origins is rewritten to the same text", "[pieces]") {
  Pieces pieces;
  Rewrite rewrite({"aé漢bc"}, pieces);
  rewrite.skip(1);
  rewrite.put(U'É', 0);
  rewrite.put('-', 1);
  rewrite.put('k', -1);
  rewrite.keep(1);
  const auto done = rewrite.done();
  CHECK(done.text == "É-kc");
  CHECK(done.origins == nullptr);
}

TEST_CASE("A part begins where its first byte comes from", "[pieces]") {
  Pieces pieces;
  const auto part = given("aéb", pieces, 5).part(1, 3);
  CHECK(part.text == "éb");
  CHECK(origins_of_piece(part) == Origins{{6, 8}, {6, 8}, {8, 9}});
  CHECK(part.begin == 6);
  CHECK(origin_of(part, 0, 3) == Origin{6, 9});
  CHECK(origin_of(part, 2, 2) == Origin{8, 8});  // nothing: counted from the begin
  CHECK(origin_of(part, 1, 4) == Origin{1, 4});  // behind the end: as it is
}

TEST_CASE("A part of a piece without origins begins as many bytes after it", "[pieces]") {
  const auto part = Piece{"aéb", -1, nullptr, 5}.part(1, 3);
  CHECK(part.text == "éb");
  CHECK(part.begin == 6);
}

TEST_CASE("Text before a piece comes from its first character", "[pieces]") {
  Pieces pieces;
  const auto piece = prepended(given("éb", pieces), "- ", pieces);
  CHECK(piece.text == "- éb");
  CHECK(origins_of_piece(piece) == Origins{{0, 2}, {0, 2}, {0, 2}, {0, 2}, {2, 3}});
  CHECK(prepended(Piece{""}, "- ", pieces).text.empty());
}

TEST_CASE("A mark that changes places takes along whether it was inserted", "[pieces]") {
  Pieces pieces;
  // é (e and an acute) with a dot below: the dot comes first, in the old é's neighbour's place.
  const auto decomposed = normalized(R"({"type": "NFD"})", given("é\u0323x", pieces), pieces);
  CHECK(decomposed.text == "e\u0323\u0301x");
  CHECK(origins_of_piece(decomposed) == Origins{{0, 2}, {2, 4}, {2, 4}, {2, 4}, {2, 4}, {4, 5}});
  const auto composed = normalized(R"({"type": "NFC"})", given("e\u0301\u0323x", pieces), pieces);
  CHECK(composed.text == "\u1eb9\u0301x");
  CHECK(origins_of_piece(composed) == Origins{{0, 1}, {0, 1}, {0, 1}, {3, 5}, {3, 5}, {5, 6}});
}

TEST_CASE("What is stripped leaves the rest where it is", "[pieces]") {
  Pieces pieces;
  const auto piece = normalized(R"({"type": "Strip", "strip_left": true, "strip_right": true})",
                                given(" \u3000a ", pieces), pieces);
  CHECK(piece.text == "a");
  CHECK(origins_of_piece(piece) == Origins{{4, 5}});
}

TEST_CASE("A letter of which two come shares its place with them", "[pieces]") {
  Pieces pieces;
  const auto lower = normalized(R"({"type": "Lowercase"})", given("\u0130A", pieces), pieces);
  CHECK(lower.text == "i\u0307a");
  CHECK(origins_of_piece(lower) == Origins{{0, 2}, {0, 2}, {0, 2}, {2, 3}});
}
