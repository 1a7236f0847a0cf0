#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "files/byte_source.h"

namespace attentive {

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
