#pragma once

#include <cstddef>
#include <string_view>

namespace attentive {

/// Bytes of the longest prefix of `text` that is well-formed UTF-8.
size_t utf8_prefix(std::string_view text);

/// True if `text` is well-formed UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF.
bool is_utf8(std::string_view text);

}  // namespace attentive
