#pragma once

// The header of a token file, one page:
//
//   bytes 0 to 7     "attntok\n"
//   bytes 8 to 15    the version of the format, 1
//   bytes 16 to 79   SHA-256 of the other bytes of the header, 64 hexadecimal digits
//   bytes 80 to 95   the number of tokens for training, and for validation
//   bytes 96 to 4095 the other members of TokenFileInfo as JSON, and spaces
//
// Numbers are little-endian, 64 bits.

#include <cstddef>
#include <string>
#include <string_view>

#include <attentive/train/token_file.h>

namespace attentive {

constexpr size_t kTokenFileHeader = 4096;

std::string make_token_file_header(const TokenFileInfo& info);
/// Throws Refusal unless the bytes are the header of a token file, unchanged.
TokenFileInfo parse_token_file_header(std::string_view header);

}  // namespace attentive
