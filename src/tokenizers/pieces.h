#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace attentive::tokenizers {

/// A part of a text: an added token, which nothing cuts or changes any more, or text still to be cut.
struct Piece {
  std::string_view text;
  int64_t added_id = -1;  // of an added token
};

/// A text in pieces, none of them empty, and the strings that its pieces point into.
struct Pieces {
  std::vector<Piece> list;
  std::deque<std::string> texts;

  std::string_view keep(std::string text) { return texts.emplace_back(std::move(text)); }

  /// Replaces every piece of text by what `change(piece, out)` appends to `out`; added tokens stay.
  template <class Change>
  void change_text(Change change) {
    std::vector<Piece> before;
    before.swap(list);
    list.reserve(before.size());
    for (const auto& piece : before) {
      if (piece.added_id >= 0) {
        list.push_back(piece);
      } else {
        change(piece.text, list);
      }
    }
  }
};

/// What becomes of the matches of a pattern: the names are those of the file.
enum class Behavior { Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous };

/// Visits the bytes [begin, end) of each match, in order.
using VisitMatch = std::function<void(size_t begin, size_t end)>;
using FindMatches = std::function<void(std::string_view text, const VisitMatch& visit)>;

/// Cuts every piece of text at the matches of a pattern; `invert` takes the matches for the rest, and the
/// rest for matches.
void cut(Pieces& pieces, const FindMatches& find, bool invert, Behavior behavior);

/// The matches of a property of characters, each a match of its own.
FindMatches each_char(bool (*is_match)(char32_t));

}  // namespace attentive::tokenizers
