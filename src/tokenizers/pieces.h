#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace attentive::tokenizers {

/// The bytes [begin, end) of the given text that a byte of a piece comes from.
struct Origin {
  uint32_t begin, end;

  bool operator==(const Origin&) const = default;
};

/// The origins of a text that is the given one: each byte comes from the whole of its character.
std::vector<Origin> origins_of(std::string_view text);

/// A part of a text: an added token, which nothing cuts or changes any more, or text still to be cut.
struct Piece {
  std::string_view text;
  int64_t added_id = -1;            // of an added token
  const Origin* origins = nullptr;  // one for each byte of text; null where nobody asks for offsets
  uint32_t begin = 0;               // where the piece begins in the given text

  /// Its bytes [at, at + size), still to be cut. Where origins are not known, it begins where it does if nothing
  /// before it was changed.
  Piece part(size_t at, size_t size) const {
    const bool known = origins != nullptr && size > 0;
    return {text.substr(at, size), -1, origins ? origins + at : nullptr,
            known ? origins[at].begin : begin + static_cast<uint32_t>(at)};
  }
};

/// A text in pieces, none of them empty, and the memory that its pieces point into.
struct Pieces {
  std::vector<Piece> list;
  std::deque<std::string> texts;
  std::deque<std::vector<Origin>> origins;

  std::string_view keep(std::string text) { return texts.emplace_back(std::move(text)); }
  const Origin* keep(std::vector<Origin> all);

  void clear() {
    list.clear();
    texts.clear();
    origins.clear();
  }

  /// Replaces every piece of text by what `change(piece, out)` appends to `out`; added tokens stay.
  template <class Change>
  void change_text(Change change) {
    before_.clear();
    before_.swap(list);
    list.reserve(before_.size());
    for (const auto& piece : before_) {
      if (piece.added_id >= 0) {
        list.push_back(piece);
      } else {
        change(piece, list);
      }
    }
  }

 private:
  std::vector<Piece> before_;
};

/// Writes the next version of a piece, a character at a time, as the Rust library's `transform_range` does. Where
/// the characters come from is tracked only for a piece with origins.
class Rewrite {
 public:
  Rewrite(const Piece& piece, Pieces& pieces);

  /// Leaves out the next characters of the old text.
  void skip(size_t characters);
  /// Writes a character. Change 0: it takes the place of the next old one; -n: of that one and the n behind it;
  /// above 0: it is inserted, and comes from where the old character before this place comes from.
  void put(char32_t character, ptrdiff_t change);
  /// Writes whole characters of the old text as they are.
  void keep(size_t bytes);
  /// The new piece; its text lives in the pieces.
  Piece done();

 private:
  Piece piece_;
  Pieces& pieces_;
  size_t at_ = 0;  // in the old text
  std::string text_;
  std::vector<Origin> origins_;
};

/// A piece with text before it, which comes from where the first character comes from; an empty one stays empty.
Piece prepended(const Piece& piece, std::string_view text, Pieces& pieces);

/// The bytes of the given text that the bytes [begin, end) of a piece with origins come from. Python's answers to
/// an empty range, and to one that reaches behind the piece, count from the piece's begin and from 0.
Origin origin_of(const Piece& piece, uint32_t begin, uint32_t end);

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
