#pragma once

// Bytes as hexadecimal text, for JSON strings, which cannot hold invalid UTF-8.

#include <string>
#include <string_view>

namespace attentive {

std::string to_hex(std::string_view bytes);
// Throws c10::ValueError prefixed with `who` unless `hex` is an even number of lower-case hexadecimal digits.
std::string from_hex(const char* who, std::string_view hex);

}  // namespace attentive
