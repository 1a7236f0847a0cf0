#include "tokenizers/byte_level.h"

#include "text/visible_bytes.h"
#include "tokenizers/unicode.h"

namespace attentive::tokenizers {

std::optional<std::string> from_visible(std::string_view token) {
  std::string bytes;
  for (size_t at = 0; at < token.size();) {
    const int byte = byte_of_visible(next_char(token, at));
    if (byte < 0) return std::nullopt;
    bytes += static_cast<char>(byte);
  }
  return bytes;
}

void make_visible(Pieces& pieces) {
  size_t size = 0;
  for (const auto& piece : pieces.list) size += piece.added_id < 0 ? piece.text.size() : 0;
  std::string& all = pieces.texts.emplace_back();
  all.reserve(2 * size);  // so that it never moves: every byte takes at most two
  pieces.change_text([&](std::string_view text, std::vector<Piece>& out) {
    const size_t begin = all.size();
    to_visible(text, all);
    out.push_back({std::string_view(all).substr(begin)});
  });
}

}  // namespace attentive::tokenizers
