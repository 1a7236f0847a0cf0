#include "io/utf8.h"

#include <algorithm>

namespace attentive {
namespace {

// Bytes at the start of ill-formed `text` that U+FFFD replaces.
size_t bad_part(std::string_view text) {
  for (size_t size = std::min<size_t>(text.size(), 3); size > 1; --size) {
    // The start of a character: some rest makes it one. The second byte alone decides, and 0x80, 0x90, 0xA0
    // fit between them whatever third and fourth bytes may be.
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
    // Only the byte after the lead has a range of its own; it rules out overlong forms, surrogates and >
    // U+10FFFF.
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

}  // namespace attentive
