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
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include <attentive/train/token_file.h>

#include "files/mapped_file.h"

namespace attentive {

constexpr size_t kTokenFileHeader = 4096;

std::string make_token_file_header(const TokenFileInfo& info);
/// Throws Refusal unless the bytes are the header of a token file, unchanged.
TokenFileInfo parse_token_file_header(std::string_view header);

/// Where to cut a text that goes on after `bytes`, of which there are at least 4: after the last line end in
/// them that a byte other than white space follows; otherwise before the last single space between such
/// bytes; otherwise after the last whole UTF-8 character. The result is above 0.
size_t end_of_piece(std::string_view bytes);

/// Reads a text file piece by piece. Every member throws Refusal.
class TextPieces {
 public:
  /// most: the largest number of bytes of a piece, at least 4. An empty file is refused.
  TextPieces(const std::filesystem::path& path, size_t most);

  /// The size of the file when it was opened.
  uint64_t size() const { return source_.size(); }
  /// Reads the next piece, which is valid until the next call; an empty one is the end of the text.
  std::string_view next();
  /// The number of bytes before the latest piece.
  uint64_t begin() const { return read_ - buffer_.size(); }

 private:
  ByteSource source_;
  size_t most_;
  std::string buffer_;  // the latest piece and what was read beyond it
  size_t piece_ = 0;
  uint64_t read_ = 0;  // bytes of the file that were read
};

}  // namespace attentive
