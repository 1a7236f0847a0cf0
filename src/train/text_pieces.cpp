#include "train/text_pieces.h"

#include <algorithm>

#include "base/refusal.h"
#include "base/strings.h"

namespace attentive {
namespace {

bool is_white(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

}  // namespace

// Tokenizers split texts before words, and a line that begins with a word is the safest place: spaces may
// belong to the word that follows, and line ends in a row to each other.
size_t end_of_piece(std::string_view bytes) {
  size_t space = 0;
  for (size_t at = bytes.size() - 1; at > 0; --at) {
    if (is_white(bytes[at])) continue;
    if (bytes[at - 1] == '\n') return at;
    if (space == 0 && at > 1 && bytes[at - 1] == ' ' && !is_white(bytes[at - 2])) space = at - 1;
  }
  return space > 0 ? space : bytes.size() - unfinished_utf8(bytes);
}

TextPieces::TextPieces(const std::filesystem::path& path, size_t most) : source_(path), most_(most) {
  if (source_.size() == 0) refuse("expected a text, got an empty file");
}

std::string_view TextPieces::next() {
  buffer_.erase(0, piece_);
  const auto rest = buffer_.size();
  const auto more = static_cast<size_t>(std::min<uint64_t>(most_ - rest, source_.size() - read_));
  buffer_.resize(rest + more);
  source_.read(read_, buffer_.data() + rest, more);
  read_ += more;
  piece_ = read_ == source_.size() ? buffer_.size() : end_of_piece(buffer_);
  return std::string_view(buffer_).substr(0, piece_);
}

}  // namespace attentive
