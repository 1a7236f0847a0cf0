#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tokenizers/pieces.h"

namespace attentive::tokenizers {

/// Byte-level BPE writes each byte as a character that can be seen: the printable ones of Latin-1 stand for
/// themselves, the other 68 bytes become U+0100 onwards, in order; a space is U+0120.
void to_visible(std::string_view bytes, std::string& out);

/// The bytes that the characters of a token stand for; none if one of them stands for no byte.
std::optional<std::string> from_visible(std::string_view token);

/// Writes every piece of text as visible characters.
void make_visible(Pieces& pieces);

}  // namespace attentive::tokenizers
