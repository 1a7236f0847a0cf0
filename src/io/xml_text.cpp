#include "io/xml_text.h"

#include "io/utf8.h"

namespace attentive {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// The bytes of the first character, which are 1 if it is not UTF-8, and whether it is.
struct Character {
  size_t size;
  bool valid;
};

Character first_character(std::string_view text) {
  for (size_t size = 1; size <= 4 && size <= text.size(); ++size) {
    if (is_utf8(text.substr(0, size))) return {size, true};
  }
  return {1, false};
}

std::string picture_of(unsigned char control) {
  const unsigned code = control == 0x7F ? 0x2421 : 0x2400U + control;
  return {static_cast<char>(0xE0 | code >> 12), static_cast<char>(0x80 | (code >> 6 & 0x3F)),
          static_cast<char>(0x80 | (code & 0x3F))};
}

std::string escaped(std::string_view character) {
  const auto byte = static_cast<unsigned char>(character[0]);
  if (byte < 0x20 || byte == 0x7F) return picture_of(byte);
  if (character == "&") return "&amp;";
  if (character == "<") return "&lt;";
  if (character == ">") return "&gt;";
  if (character == "\"") return "&quot;";
  const bool no_character = character == "\xEF\xBF\xBE" || character == "\xEF\xBF\xBF";
  return std::string(no_character ? kReplacement : character);
}

}  // namespace

std::string xml_text(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const auto [size, valid] = first_character(text);
    out += valid ? escaped(text.substr(0, size)) : std::string(kReplacement);
    text.remove_prefix(size);
  }
  return out;
}

std::string shortened(std::string_view text, size_t most) {
  size_t end = 0, before_last = 0;
  for (size_t count = 0; count < most && end < text.size(); ++count) {
    before_last = end;
    end += first_character(text.substr(end)).size;
  }
  if (end == text.size()) return std::string(text);
  return std::string(text.substr(0, before_last)) + "…";
}

}  // namespace attentive
