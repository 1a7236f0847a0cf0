#include <catch2/catch_test_macros.hpp>

#include "files/torch/pickle.h"

using namespace attentive::pickle;

namespace {

std::string bytes(std::initializer_list<int> values) {
  std::string text;
  for (const int value : values) text += static_cast<char>(value);
  return text;
}

}  // namespace

TEST_CASE("integers in two's complement are written in decimal", "[big_integer]") {
  CHECK(decimal_of("") == "0");
  CHECK(decimal_of(bytes({0})) == "0");
  CHECK(decimal_of(bytes({0xFF})) == "-1");
  CHECK(decimal_of(bytes({0xFF, 0})) == "255");
  CHECK(decimal_of(bytes({0, 0, 0, 0, 0, 0, 0, 0x80})) == "-9223372036854775808");
  CHECK(decimal_of(bytes({0, 0, 0, 0, 0, 0, 0, 0x80, 0})) == "9223372036854775808");
  CHECK(decimal_of(bytes({0, 0, 0, 0, 0, 0, 0, 0, 0x40})) == "1180591620717411303424");
  CHECK(decimal_of(bytes({0, 0xCA, 0x9A, 0x3B, 0})) == "1000000000");
}

TEST_CASE("decimal digits become the shortest two's complement", "[big_integer]") {
  CHECK(bytes_of("0", 8) == bytes({0}));
  CHECK(bytes_of("-1", 8) == bytes({0xFF}));
  CHECK(bytes_of("127", 8) == bytes({0x7F}));
  CHECK(bytes_of("128", 8) == bytes({0x80, 0}));
  CHECK(bytes_of("-128", 8) == bytes({0x80}));
  CHECK(bytes_of("-129", 8) == bytes({0x7F, 0xFF}));
  CHECK(bytes_of("1180591620717411303424", 9) == bytes({0, 0, 0, 0, 0, 0, 0, 0, 0x40}));
  CHECK(bytes_of("-00018446744073709551616", 9) == bytes({0, 0, 0, 0, 0, 0, 0, 0, 0xFF}));
  for (const auto* digits : {"98765432109876543210987654321", "-340282366920938463463374607431768211456"}) {
    CHECK(decimal_of(bytes_of(digits, 64)) == digits);
  }
}

TEST_CASE("what is no integer, or too long a one, has no bytes", "[big_integer]") {
  for (const auto* text : {"", "-", "+1", "1e3", " 1", "0x10"}) CHECK(bytes_of(text, 8).empty());
  CHECK(bytes_of("128", 1).empty());
  CHECK(bytes_of(std::string(1000, '9'), 8).empty());
}
