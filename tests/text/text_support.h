#pragma once

// Texts that every tokenizer must restore byte for byte.

#include <random>
#include <string>
#include <vector>

namespace attentive::test {

inline std::vector<std::string> awkward_texts() {
  std::string every_byte;
  for (int i = 0; i < 256; ++i) every_byte += static_cast<char>(i);
  std::string random;
  std::mt19937 draw(5);
  for (int i = 0; i < 4000; ++i) random += static_cast<char>(draw() & 255);
  using namespace std::string_literals;
  return {"a",
          "To be, or not to be: that is the question.\n\n  Whether 'tis 12 times   nobler \t\n",
          "caf\xc3\xa9 \xe6\xbc\xa2\xe5\xad\x97 \xf0\x9f\x8e\xad",
          "NUL\0in the\0middle\0"s,
          "cut off \xe6\xbc",
          "overlong \xc0\xaf and surrogate \xed\xa0\x80",
          std::string(5000, 'x') + std::string(3000, ' '),
          every_byte,
          random};
}

}  // namespace attentive::test
