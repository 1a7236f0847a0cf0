#pragma once

// The JSON form of the tokenizers: {"type": "char", "characters": ["00", "c3a9", ...]} with each character as
// hexadecimal bytes (JSON strings cannot hold invalid UTF-8), and {"type": "bpe", "merges": [[104, 101],
// ...]}.

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace attentive {

std::string to_hex(std::string_view bytes);
// Throws c10::ValueError prefixed with `who` unless `hex` is an even number of lower-case hexadecimal digits.
std::string from_hex(const char* who, std::string_view hex);

}  // namespace attentive
