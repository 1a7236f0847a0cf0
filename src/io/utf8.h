#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace attentive {

/// Bytes of the longest prefix of `text` that is well-formed UTF-8.
size_t utf8_prefix(std::string_view text);

/// True if `text` is well-formed UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF.
bool is_utf8(std::string_view text);

/// Ill-formed UTF-8 made well-formed: U+FFFD for each longest part of a character that lacks its rest, and
/// for each other bad byte.
std::string replace_bad_utf8(std::string text);

}  // namespace attentive
