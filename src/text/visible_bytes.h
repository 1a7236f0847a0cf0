#pragma once

#include <string>
#include <string_view>

namespace attentive {

/// Byte-level BPE writes each byte as a character that can be seen: the printable ones of Latin-1 stand for
/// themselves, the other 68 bytes become U+0100 onwards, in order; a space is U+0120. Appends UTF-8.
void to_visible(std::string_view bytes, std::string& out);

/// The byte that a character stands for; -1 if it stands for none.
int byte_of_visible(char32_t character);

}  // namespace attentive
