#include "text/visible_bytes.h"

#include <array>

namespace attentive {
namespace {

constexpr char32_t kCharacters = 0x100 + 68;

struct Table {
  std::array<char32_t, 256> of_byte;
  std::array<int, kCharacters> byte_of;  // -1: no byte
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

int byte_of_visible(char32_t character) {
  return character < kCharacters ? kTable.byte_of[character] : -1;
}

}  // namespace attentive
