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
  bool tracked = false;
  for (const auto& piece : pieces.list) {
    if (piece.added_id >= 0) continue;
    size += piece.text.size();
    tracked = tracked || piece.origins;
  }
  // Every byte becomes at most two, so the reserved memory never moves and views into it stay valid.
  pieces.take(2 * size);
  std::string& all = pieces.texts.emplace_back();
  all.reserve(2 * size);
  auto& origins = pieces.origins.emplace_back();
  if (tracked) origins.reserve(2 * size);
  pieces.change_text([&](const Piece& piece, std::vector<Piece>& out) {
    const size_t begin = all.size();
    to_visible(piece.text, all);
    Piece visible = piece;
    visible.text = std::string_view(all).substr(begin);
    if (piece.origins) {
      visible.origins = origins.data() + origins.size();
      size_t byte = 0;
      for (size_t at = 0; at < visible.text.size(); ++at) {
        if (at > 0 && begins_character(visible.text[at])) ++byte;
        origins.push_back(piece.origins[byte]);
      }
    }
    out.push_back(visible);
  });
}

}  // namespace attentive::tokenizers
