#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <queue>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace attentive {

/// The token that replaces two neighbours. Merges of a lower rank are done first.
template <std::signed_integral Token>
struct NeighbourMerge {
  int64_t rank;
  Token token;
};

/// Byte-pair encoding: joins the two neighbours whose merge has the lowest rank, the leftmost ones first,
/// until no merge applies. `merge_of(left, right)` is an optional `NeighbourMerge`. Tokens are not negative;
/// a token that was joined to its left neighbour is -1 afterwards. O(n log n).
template <std::signed_integral Token, class MergeOf>
void join_neighbours(std::vector<Token>& tokens, const MergeOf& merge_of) {
  // The tokens form a linked list; the heap holds candidates, some of them out of date.
  const size_t size = tokens.size();
  std::vector<size_t> next(size), previous(size);
  using Join = std::tuple<int64_t, size_t, Token>;  // rank, index of the left token, resulting token
  std::priority_queue<Join, std::vector<Join>, std::greater<>> joins;
  const auto offer = [&](size_t left, size_t right) {
    if (const auto merge = merge_of(tokens[left], tokens[right]))
      joins.emplace(merge->rank, left, merge->token);
  };
  for (size_t i = 0; i < size; ++i) {
    next[i] = i + 1;
    previous[i] = i - 1;  // the first element's value is never read
    if (i + 1 < size) offer(i, i + 1);
  }
  while (!joins.empty()) {
    const auto [rank, left, token] = joins.top();
    joins.pop();
    const size_t right = next[left];
    if (tokens[left] < 0 || right >= size) continue;
    const auto merge = merge_of(tokens[left], tokens[right]);
    if (!merge || merge->token != token) continue;
    tokens[left] = token;
    tokens[right] = -1;
    next[left] = next[right];
    if (next[left] < size) {
      previous[next[left]] = left;
      offer(left, next[left]);
    }
    if (left > 0) offer(previous[left], left);
  }
}

/// Joins as `join_neighbours` does, and removes the tokens that were joined to their left neighbours.
template <std::signed_integral Token, class MergeOf>
void merge_neighbours(std::vector<Token>& tokens, const MergeOf& merge_of) {
  join_neighbours(tokens, merge_of);
  std::erase(tokens, Token{-1});
}

namespace visible_bytes {

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

inline constexpr Table kTable = make_table();

}  // namespace visible_bytes

/// Appends bytes in the form of byte-level BPE, which writes each byte as a visible character: the printable
/// characters of Latin-1 stand for themselves, the other 68 bytes become U+0100 and following, in order; a
/// space is U+0120. The output is UTF-8.
inline void to_visible(std::string_view bytes, std::string& out) {
  for (const char byte : bytes) {
    const char32_t c = visible_bytes::kTable.of_byte[static_cast<unsigned char>(byte)];
    if (c < 0x80) {
      out += static_cast<char>(c);
    } else {
      out += static_cast<char>(0xC0 | c >> 6);
      out += static_cast<char>(0x80 | (c & 0x3F));
    }
  }
}

/// The byte that a character stands for, or -1.
inline int byte_of_visible(char32_t character) {
  return character < visible_bytes::kCharacters ? visible_bytes::kTable.byte_of[character] : -1;
}

}  // namespace attentive
