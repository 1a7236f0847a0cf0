#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <attentive/tokenizers/pretrained_tokenizer.h>

namespace attentive::tokenizers {

/// The bytes [begin, end) of the given text that a byte of a piece comes from.
struct Origin {
  uint32_t begin, end;

  bool operator==(const Origin&) const = default;
};

/// The origins of a text that is itself the given one: each byte comes from its whole character.
std::vector<Origin> origins_of(std::string_view text);

/// A part of a text: either an added token, which is not cut or changed any more, or text that is still to be
/// cut.
struct Piece {
  std::string_view text;
  int64_t added_id = -1;            // the id of an added token; -1 for text
  const Origin* origins = nullptr;  // one for each byte of text; null if offsets are not tracked
  uint32_t begin = 0;               // where the piece begins in the given text

  /// The piece of its bytes [at, at + size). Without origins, `begin` of the result is right only if nothing
  /// before it was changed.
  Piece part(size_t offset, size_t size) const {
    const bool known = origins != nullptr && size > 0;
    return {text.substr(offset, size), -1, origins ? origins + offset : nullptr,
            known ? origins[offset].begin : begin + static_cast<uint32_t>(offset)};
  }
};

/// The non-empty pieces of a text, and the memory to which they point.
class Pieces {
 public:
  /// Begins with a text of so many bytes, without pieces.
  explicit Pieces(size_t bytes = 0) { start(bytes); }
  void start(size_t bytes);

  std::vector<Piece> list;
  std::deque<std::string> texts;
  std::deque<std::vector<Origin>> origins;

  std::string_view keep(std::string text) {
    take(text.size());
    return texts.emplace_back(std::move(text));
  }
  const Origin* keep(std::vector<Origin> all);

  /// Throws Refusal unless so many bytes of new text may be kept. A file can state steps that each multiply a
  /// text, so all of them together may make 256 bytes for each byte of the text, and a megabyte.
  void check_room(size_t bytes) const;
  /// Counts bytes of new text that the caller keeps in `texts`.
  void take(size_t bytes) {
    check_room(bytes);
    room_ -= bytes;
  }

  /// Replaces every piece of text by the pieces that `change(piece, out)` appends to `out`; added tokens
  /// stay.
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
  size_t most_ = 0, room_ = 0;  // bytes of new text in all, and those that are left
};

/// Writes the changed version of a piece, character by character, as the Rust library's `transform_range`
/// does. The origins of the characters are tracked only for a piece that has origins.
class Rewrite {
 public:
  Rewrite(const Piece& piece, Pieces& pieces);

  /// Leaves out the next characters of the old text.
  void skip(size_t characters);
  /// Writes a character. A `change` of 0 means that it replaces the next old character, and -n that it
  /// replaces this one and the n after it. A positive change means that it is inserted, with the origin of
  /// the old character before this place.
  void put(char32_t character, ptrdiff_t change);
  /// Writes whole characters of the old text as they are.
  void keep(size_t bytes);
  /// Returns the new piece; its text is stored in the Pieces.
  Piece done();

 private:
  Piece piece_;
  Pieces& pieces_;
  size_t at_ = 0;  // byte in the old text
  std::string text_;
  std::vector<Origin> origins_;
};

/// Returns the piece with `text` before it, which gets the origin of the piece's first character; an empty
/// piece stays empty.
Piece prepended(const Piece& piece, std::string_view text, Pieces& pieces);

/// The bytes of the given text from which the bytes [begin, end) of a piece with origins come. As in Python,
/// an empty range is counted from the piece's begin, and a range that reaches beyond the piece from 0.
Origin origin_of(const Piece& piece, uint32_t begin, uint32_t end);

/// The treatment of the matches of a pattern; the names are those of the file.
enum class Behavior { Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous };

/// Visits the bytes [begin, end) of each match, in order.
using VisitMatch = std::function<void(size_t begin, size_t end)>;
using FindMatches = std::function<void(std::string_view text, const VisitMatch& visit)>;

/// Cuts every piece of text at the matches of a pattern; `invert` swaps the matches with the text between
/// them.
void cut(Pieces& pieces, const FindMatches& find, bool invert, Behavior behavior);

/// Matches each character that has a property as a match of its own.
FindMatches each_char(bool (*is_match)(char32_t));

/// Maps each byte of a text to the index of its character.
class CharacterPlaces {
 public:
  /// `text` is UTF-8 of less than 4 GiB. An ASCII text takes no memory, any other 4 bytes per byte.
  explicit CharacterPlaces(std::string_view text);

  /// The characters of a range of bytes. A range outside the text gives the values that Python gives.
  TextSpan characters(Origin bytes) const;

 private:
  size_t size_;
  std::vector<uint32_t> places_;
};

}  // namespace attentive::tokenizers
