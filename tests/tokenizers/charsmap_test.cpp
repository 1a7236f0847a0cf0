#include <random>

#include <catch2/catch_test_macros.hpp>

#include "base/refusal.h"
#include "support/refusal.h"
#include "tokenizers/normalizers.h"
#include "tokenizers/small_tokenizer.h"

using namespace attentive;
using namespace attentive::test;
using namespace attentive::tokenizers;

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
      for (int offset = 0; offset < 256; ++offset) {
        text.assign(1, static_cast<char>(offset));
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
