#include "base/strings.h"

#include <algorithm>

#include <c10/util/Exception.h>

namespace attentive {
namespace {

// The number of bytes at the start of ill-formed `text` that one U+FFFD replaces.
size_t bad_part(std::string_view text) {
  for (size_t size = std::min<size_t>(text.size(), 3); size > 1; --size) {
    // A prefix begins a character if some continuation completes it. Only the second byte's range depends on
    // the first, so 0x80, 0x90 and 0xA0 cover all cases; the third and fourth bytes may be any continuation.
    for (const char* rest : {"\x80", "\x80\x80"}) {
      if (is_utf8(std::string(text.substr(0, size)) + rest)) return size;
    }
  }
  return 1;
}

}  // namespace

size_t utf8_prefix(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  size_t i = 0;
  while (i < text.size()) {
    const size_t start = i;
    const unsigned lead = byte(i++);
    if (lead < 0x80) continue;
    const size_t tail = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
    if (lead < 0xC2 || lead > 0xF4 || text.size() - i < tail) return start;
    // Only the byte after the lead byte has a restricted range. The restriction rules out overlong forms,
    // surrogates and characters above U+10FFFF.
    const unsigned low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    const unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (byte(i) < low || byte(i) > high) return start;
    for (size_t k = 1; k < tail; ++k) {
      if ((byte(i + k) & 0xC0) != 0x80) return start;
    }
    i += tail;
  }
  return i;
}

bool is_utf8(std::string_view text) {
  return utf8_prefix(text) == text.size();
}

std::string replace_bad_utf8(std::string text) {
  std::string_view rest = text;
  size_t good = utf8_prefix(rest);
  if (good == rest.size()) return text;
  std::string whole;
  for (;; good = utf8_prefix(rest)) {
    whole += rest.substr(0, good);
    rest.remove_prefix(good);
    if (rest.empty()) return whole;
    whole += "\xEF\xBF\xBD";
    rest.remove_prefix(bad_part(rest));
  }
}

size_t unfinished_utf8(std::string_view text) {
  for (size_t size = 1; size <= std::min<size_t>(text.size(), 3); ++size) {
    const auto end = text.substr(text.size() - size);
    const auto first = static_cast<unsigned char>(end[0]);
    if ((first & 0xC0) == 0x80) continue;  // a continuation byte
    return first >= 0xC2 && first <= 0xF4 && bad_part(end) == size ? size : 0;
  }
  return 0;
}

std::string to_hex(std::string_view bytes) {
  constexpr const char* digits = "0123456789abcdef";
  std::string hex;
  hex.reserve(2 * bytes.size());
  for (const unsigned char byte : bytes) {
    hex += digits[byte >> 4];
    hex += digits[byte & 15];
  }
  return hex;
}

std::string from_hex(const char* caller, std::string_view hex) {
  const auto digit = [&](char c) -> int {
    if (c >= '0' && c <= '9') return c - '0';
    TORCH_CHECK_VALUE(c >= 'a' && c <= 'f', caller, ": expected lower-case hexadecimal digits, got \"", hex,
                      "\"");
    return c - 'a' + 10;
  };
  TORCH_CHECK_VALUE(hex.size() % 2 == 0, caller, ": expected an even number of hexadecimal digits, got \"",
                    hex, "\"");
  std::string bytes;
  bytes.reserve(hex.size() / 2);
  for (size_t i = 0; i < hex.size(); i += 2)
    bytes += static_cast<char>(digit(hex[i]) * 16 + digit(hex[i + 1]));
  return bytes;
}

bool matches(std::string_view pattern, std::string_view text) {
  size_t p = 0, t = 0, star = std::string_view::npos, resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p, ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;  // let the last star take one character more
      t = ++resume;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

bool matches_any(const std::vector<std::string>& patterns, std::string_view text) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return matches(pattern, text); });
}

namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// The length in bytes of the first character, and whether it is UTF-8. A byte that is not UTF-8 has length 1.
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
