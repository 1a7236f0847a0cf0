#include "tokenizers/byte_level.h"

#include <array>

#include "tokenizers/unicode.h"

namespace attentive::tokenizers {
namespace {

constexpr char32_t kCharacters = 0x100 + 68;

struct Table {
  std::array<char32_t, 256> of_byte;
  std::array<int, kCharacters> byte_of;  // -1: stands for none
};

constexpr Table make_table() {
  Table table{};
  table.byte_of.fill(-1);
  char32_t next = 0x100;
  for (char32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
    table.of_byte[byte] = printable ? byte : next++;
    table.byte_of[table.of_byte[byte]] = static_cast<int>(byte);
  }
  return table;
}

constexpr Table kTable = make_table();

}  // namespace

void to_visible(std::string_view bytes, std::string& out) {
  for (const char byte : bytes) {
    const char32_t c = kTable.of_byte[static_cast<unsigned char>(byte)];
    if (c < 0x80) {
      out += static_cast<char>(c);
    } else {
      out += static_cast<char>(0xC0 | c >> 6);
      out += static_cast<char>(0x80 | (c & 0x3F));
    }
  }
}

std::optional<std::string> from_visible(std::string_view token) {
  std::string bytes;
  for (size_t at = 0; at < token.size();) {
    const char32_t c = next_char(token, at);
    if (c >= kCharacters || kTable.byte_of[c] < 0) return std::nullopt;
    bytes += static_cast<char>(kTable.byte_of[c]);
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
