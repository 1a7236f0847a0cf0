#pragma once

#include <string>
#include <string_view>

namespace attentive {

/// Appends bytes in the form of byte-level BPE, which writes each byte as a visible character: the printable
/// characters of Latin-1 stand for themselves, the other 68 bytes become U+0100 and following, in order; a
/// space is U+0120. The output is UTF-8.
void to_visible(std::string_view bytes, std::string& out);

/// The byte that a character stands for, or -1.
int byte_of_visible(char32_t character);

}  // namespace attentive
