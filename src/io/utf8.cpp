#include "io/utf8.h"

#include <cstddef>

namespace attentive {

bool is_utf8(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  for (size_t i = 0; i < text.size();) {
    const unsigned lead = byte(i++);
    if (lead < 0x80) continue;
    const size_t tail = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
    if (lead < 0xC2 || lead > 0xF4 || text.size() - i < tail) return false;
    // Only the byte after the lead has a range of its own; it rules out overlong forms, surrogates and >
    // U+10FFFF.
    const unsigned low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    const unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (byte(i) < low || byte(i) > high) return false;
    for (size_t k = 1; k < tail; ++k) {
      if ((byte(i + k) & 0xC0) != 0x80) return false;
    }
    i += tail;
  }
  return true;
}

}  // namespace attentive
