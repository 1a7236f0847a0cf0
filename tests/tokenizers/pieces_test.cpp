#include "tokenizers/pieces.h"

#include <random>

#include <catch2/catch_test_macros.hpp>

#include "base/refusal.h"
#include "support/errors.h"
#include "tokenizers/normalizers.h"
#include "tokenizers/pre_tokenizers.h"
#include "tokenizers/regex.h"
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

using namespace attentive;
using attentive::test::refusal_of;

namespace {

std::string refused_pattern(std::string_view pattern) {
  return refusal_of([&] { return Regex(pattern); });
}

std::vector<std::string> all_matches(std::string_view pattern, std::string_view text) {
  std::vector<std::string> all;
  Regex(pattern).find_all(
      text, [&](size_t begin, size_t end) { all.emplace_back(text.substr(begin, end - begin)); });
  return all;
}

using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE("A pattern means in PCRE2 what it means in Oniguruma", "[regex]") {
  CHECK(all_matches(R"(\s)", "a\u180Eb\u0085c\u3000") == Texts{"\u0085", "\u3000"});
  CHECK(all_matches(R"([^\s])", "\u180E ") == Texts{"\u180E"});
  CHECK(all_matches(R"(\w+)", "q\u0301_1\u216B\u00BD\u24B6 \u2074") == Texts{"q\u0301_1\u216B\u00BD\u24B6"});
  CHECK(all_matches(R"([\w]+)", "q\u0301_1\u216B\u00BD\u24B6") ==
        Texts{"q\u0301_1\u216B", "\u24B6"});  // a half is none
  CHECK(all_matches(R"(\W)", "\u00BDa ") == Texts{" "});
  CHECK(all_matches(R"([^\w])", "\u00BDa") == Texts{"\u00BD"});
  CHECK(all_matches(R"(\d+)", "12\u0663\u00B2") == Texts{"12\u0663"});
  CHECK(all_matches(R"(\v)", "\v\n") == Texts{"\v"});
  CHECK(all_matches(R"(.)", "\r\n\u2028") == Texts{"\r", "\u2028"});
  CHECK(all_matches(R"(\p{Han}+)", "\u4E2D\u3001\u6587") ==
        Texts{"\u4E2D", "\u6587"});  // U+3001 is used with Han only
  CHECK(all_matches(R"((?i:'s))", "'S 'ſ") == Texts{"'S", "'ſ"});
  CHECK(all_matches(R"(\u0041|\x42|\x{1F600})", "AB\U0001F600") == Texts{"A", "B", "\U0001F600"});
  CHECK(all_matches("a*", "baac") == Texts{"", "aa", ""});
  CHECK(all_matches(R"(\Aa)", "aa\na") == Texts{"a"});
  CHECK(all_matches(R"(a\z|\Ab)", "baba\naa") == Texts{"b", "a"});
}

TEST_CASE("Classes hold classes, and what is in two of them", "[regex]") {
  CHECK(all_matches(R"([^(\s|[.,!]]+)", "a[b(c|d.e f]g") == Texts{"a[b", "c", "d", "e", "f]g"});  // BLOOM's
  CHECK(all_matches(R"([a[^\x00-z]]+)", "ab~é") == Texts{"a", "~é"});
  CHECK(all_matches(R"([^a[^a-d]]+)", "abcde") == Texts{"bcd"});
  CHECK(all_matches(R"([\p{L}&&[^\p{Han}]]+)", "a中b文1") == Texts{"a", "b"});  // Kimi K2's
  CHECK(all_matches(R"([^\p{L}&&[^\p{Han}]]+)", "a中b文1") == Texts{"中", "文1"});
  CHECK(all_matches(R"([a-f&&c-z&&[^e]]+)", "abcdefg") == Texts{"cd", "f"});
  CHECK(all_matches("[a[b-d&&c-e]]+", "abcde") == Texts{"a", "cd"});
  CHECK(all_matches(R"([\S]+)", "a b\u3000c") == Texts{"a", "b", "c"});
  CHECK(all_matches(R"([^\W\d]+)", "a1 _é") == Texts{"a", "_é"});
  CHECK(all_matches(R"([\D&&\w]+)", "a1-b") == Texts{"a", "b"});
  CHECK(all_matches(R"((?<=[\p{L}&&[^x]])1)", "x1a1") == Texts{"1"});
  CHECK(all_matches("[a-]+", "a-b") == Texts{"a-"});
  CHECK(all_matches("[[a-]c]+", "a-bc") == Texts{"a-", "c"});  // no range from a to c
  CHECK(all_matches("[^a]", "\n") == Texts{"\n"});
  CHECK(all_matches("[^a[^\\n]]", "\na") == Texts{"\n"});
  CHECK(all_matches("[é-í]+", "èéêí") == Texts{"éêí"});
  CHECK(all_matches("[^:a:]+", ":b:") == Texts{"b"});
  CHECK(all_matches("[:a:]+", "b:a") == Texts{":a"});  // no POSIX bracket
}

TEST_CASE("Syntax of which the two have different ideas is refused", "[regex]") {
  const auto said = [](const std::string& what) {
    return what + " in a regular expression is not supported";
  };
  CHECK(refused_pattern("^a") == said("the anchor ^"));
  CHECK(refused_pattern("a$") == said("the anchor $"));
  CHECK(refused_pattern(R"(\ba)") == said(R"(\b)"));
  CHECK(refused_pattern(R"(a\Z)") == said(R"(\Z)"));
  CHECK(refused_pattern(R"(\A*a)") == said("a repetition of an anchor"));
  CHECK(refused_pattern(R"([\A])") == said(R"(\A)"));
  CHECK(refused_pattern(R"(\h)") == said(R"(\h)"));
  CHECK(refused_pattern(R"((a)\1)") == said(R"(\1)"));
  CHECK(refused_pattern("[[:alpha:]]") == said("a POSIX bracket"));
  CHECK(refused_pattern("[a&&]") == said("a class with an empty side of &&"));
  CHECK(refused_pattern("[&&a]") == said("a class with an empty side of &&"));
  CHECK(refused_pattern("[[]a]") == said("a class that begins with ]"));
  CHECK(refused_pattern(R"([a-\d])") == said("a range that ends in a class"));
  CHECK(refused_pattern("[a-[b]]") == said("a range that ends in a class"));
  CHECK(refused_pattern("[a-c-e]") == said("a - behind a range or a class"));
  CHECK(refused_pattern(R"([\d-e])") == said("a - behind a range or a class"));
  CHECK(refused_pattern(std::string(100'000, '[')) == said("a class in so many others"));
  CHECK(refused_pattern("[]a]") == said("a class that begins with ]"));
  CHECK(refused_pattern("(?i)a") == said("(?i"));
  CHECK(refused_pattern("(*UTF)a") == said("(*"));
  CHECK(refused_pattern("(?i:ss)") == said("what follows (?i:"));
  CHECK(refused_pattern("(?i:é)") == said("what follows (?i:"));
  CHECK(refused_pattern("a{2}+") == said("a repetition after }"));
  CHECK(refused_pattern("a{,2}") == said("a { that is no repetition"));
  CHECK(refused_pattern(R"(\p{^L})") == said("a property with a sign in it"));
  CHECK(refused_pattern(R"(\pL)") == said("\\p without {}"));
  CHECK(refused_pattern(R"(\xE9)") == said("\\x of a byte"));
  CHECK(refused_pattern(R"(\x{})") == said("\\x without hexadecimal digits"));
  CHECK(refused_pattern("a)") == "the regular expression has a ) too many");
  CHECK(refused_pattern("[a") == "the regular expression ends too early");
  CHECK(refused_pattern("(a").starts_with(
      "the regular expression (a does not compile: missing closing parenthesis"));
  CHECK(refused_pattern(R"(\p{Nonsense})").find("does not compile: ") != std::string::npos);
}

TEST_CASE("A pattern that tries every way to match ends in an error", "[regex]") {
  const std::string text = std::string(60, 'a') + "b";
  try {
    (void)all_matches(R"((?:a|\p{Ll})*[cd])", text);
    FAIL("it ended");
  } catch (const Refusal& refusal) {
    CHECK(std::string(refusal.what()).find("gave up at byte 0: match limit exceeded") != std::string::npos);
  }
}

using namespace attentive::test;

namespace {

void append_unit(std::string& bytes, uint32_t unit) {
  for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(unit >> shift);
}

// A charsmap of 256 units, of which some are set, and two replacements: "x" at byte 0, "é" at 2.
std::string charsmap_of(const std::vector<std::pair<size_t, uint32_t>>& set, uint32_t size = 1024) {
  std::vector<uint32_t> units(256);
  for (const auto& [place, unit] : set) units[place] = unit;
  std::string bytes;
  append_unit(bytes, size);
  for (const auto unit : units) append_unit(bytes, unit);
  return bytes + std::string("x\0\xC3\xA9\0", 5);
}

constexpr uint32_t kEnds = 1 << 8, kValue = uint32_t{1} << 31;
constexpr uint32_t to(uint32_t offset) {
  return offset << 10;
}

// "a" becomes x, "bc" becomes é. The root is state 1; 'a' leads to state 2, 'b' to state 4 and 'c' from it to
// 8.
const std::vector<std::pair<size_t, uint32_t>> kSmall = {
    {0, to(1)},
    {1 ^ 'a', 'a' | kEnds | to((1 ^ 'a') ^ 2)},
    {2, kValue | 0},
    {1 ^ 'b', 'b' | to((1 ^ 'b') ^ 4)},
    {4 ^ 'c', 'c' | kEnds | to((4 ^ 'c') ^ 8)},
    {8, kValue | 2},
};

std::vector<std::pair<size_t, uint32_t>> changed(size_t place, uint32_t unit) {
  auto units = kSmall;
  units.emplace_back(place, unit);
  return units;
}

}  // namespace

TEST_CASE("A charsmap finds the shortest text that another one begins with", "[charsmap]") {
  const Charsmap small(charsmap_of(kSmall));
  CHECK(small.find("a") == "x");
  CHECK(small.find("abc") == "x");
  CHECK(small.find("bcd") == "é");
  CHECK(small.find("b") == std::nullopt);
  CHECK(small.find("bd") == std::nullopt);
  CHECK(small.find("c") == std::nullopt);
  CHECK(small.find("") == std::nullopt);
  CHECK(small.find(std::string_view("\0a", 2)) == std::nullopt);
  CHECK(small.knows_ascii('a'));
  CHECK(small.knows_ascii('b'));
  CHECK_FALSE(small.knows_ascii('c'));
  CHECK_FALSE(small.knows_ascii('\0'));
}

TEST_CASE("Charsmaps that are cut, or lead outside themselves, are refused", "[charsmap]") {
  const auto refused = [](const std::string& bytes) { return refusal_of([&] { return Charsmap(bytes); }); };
  const auto whole = charsmap_of(kSmall);
  CHECK(refused(whole) == "no error");
  CHECK(refused("") == "expected a charsmap of 4 to 16777216 bytes, got 0");
  CHECK(refused(std::string(size_t{17} << 20, '\0')) ==
        "expected a charsmap of 4 to 16777216 bytes, got 17825792");
  const std::string sizes = "expected a charsmap whose array has 4 to 1029 bytes in units of four, got ";
  for (const uint32_t size : {0U, 1026U, 1032U, 0xFFFFFFFFU}) {
    CHECK(refused(charsmap_of(kSmall, size)) == sizes + std::to_string(size));
  }
  for (size_t size = 0; size < whole.size() - 5; ++size) CHECK(refused(whole.substr(0, size)) != "no error");
  CHECK(refused(whole + "\xFF") == "expected a charsmap whose replacements are UTF-8");

  const auto steps = [](size_t unit) {
    return "expected a charsmap of 256 units, got a step to unit " + std::to_string(unit);
  };
  CHECK(refused(charsmap_of(changed(0, to(256)))) == steps(256));
  CHECK(refused(charsmap_of(changed(0, to(0x3FFF) | 1 << 9))) == steps(0x3FFF << 8));
  CHECK(refused(charsmap_of(changed(1 ^ 'a', 'a' | kEnds | to(512)))) == steps(512 ^ 1 ^ 'a'));
  CHECK(refused(charsmap_of(changed(20, 'q' | to(0x100)))) == steps(0x100 ^ 20));

  const auto replacement = [](size_t byte) {
    return "expected a charsmap with 5 bytes of replacements, got one at byte " + std::to_string(byte);
  };
  CHECK(refused(charsmap_of(changed(2, kValue | 6))) == replacement(6));
  CHECK(refused(charsmap_of(changed(2, kValue | 3))) == replacement(3));  // within é
  CHECK(refused(charsmap_of(changed(2, kValue | 0x7FFFFFFF))) == replacement(0x7FFFFFFF));
  CHECK(Charsmap(charsmap_of(changed(2, kValue | 5))).find("a") == "");
}

TEST_CASE("A charsmap whose array goes round ends with the text", "[charsmap]") {
  // 'b' leads from the root to the root.
  const Charsmap round(charsmap_of(changed(1 ^ 'b', 'b' | to('b'))));
  CHECK(round.find(std::string(1000, 'b')) == std::nullopt);
  CHECK(round.find(std::string(1000, 'b') + "a") == "x");
}

TEST_CASE("A damaged charsmap is refused or read, and nothing else", "[charsmap]") {
  const auto documents = read_json(tokenizer_data("t5.json"));
  const auto whole = from_base64(documents["normalizer"]["precompiled_charsmap"].get<std::string>());
  CHECK(Charsmap(whole).find("ﬁ") == "fi");
  std::mt19937 draw(3);
  size_t read = 0;
  for (int i = 0; i < 3000; ++i) {
    auto bytes = whole;
    for (size_t changes = 1 + draw() % 3; changes > 0; --changes)
      bytes[draw() % bytes.size()] = static_cast<char>(draw());
    if (draw() % 4 == 0) bytes.resize(draw() % bytes.size());
    try {
      const Charsmap charsmap(bytes);
      ++read;
      std::string text;
      for (int byte = 0; byte < 256; ++byte) {
        text.assign(1, static_cast<char>(byte));
        for (int more = 0; more < 4; ++more) text += static_cast<char>(draw());
        (void)charsmap.find(text);
      }
    } catch (const Refusal&) {
    }
  }
  CHECK(read > 100);
}

TEST_CASE("Base64 is read, with its padding", "[charsmap]") {
  CHECK(from_base64("") == "");
  CHECK(from_base64("YQ==") == "a");
  CHECK(from_base64("YWI=") == "ab");
  CHECK(from_base64("YWJj") == "abc");
  CHECK(from_base64("+/8A") == std::string("\xFB\xFF\0", 3));
  const auto refused = [](std::string_view text) { return refusal_of([&] { return from_base64(text); }); };
  CHECK(refused("YQ=") == "expected base64 of a multiple of four characters, got 3");
  CHECK(refused("YQ-=") == "expected base64, got another character at byte 2");
  CHECK(refused("====") == "expected base64, got another character at byte 0");
  CHECK(refused("YQ==YQ==") == "expected base64, got another character at byte 2");
  CHECK(refused("YR==") == "expected base64 whose last bits are zero");
}
