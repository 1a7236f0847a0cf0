#include "tokenizers/sentence_normalizers.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/refusal.h"
#include "text/visible_bytes.h"
#include "tokenizers/charsmap.h"
#include "tokenizers/pattern.h"
#include "tokenizers/unicode.h"

namespace attentive::tokenizers {
namespace {

size_t count_characters(std::string_view text) {
  return static_cast<size_t>(std::ranges::count_if(text, begins_character));
}

// Writes a text that a charsmap replaces in parts, with Python's origins: the new characters replace the old
// ones in order, and the last new character replaces all old ones that remain. Removed text is taken over by
// the character before it. If text is removed at the start, no character takes it over, and all characters
// that follow move there.
class CharsmapWriter {
 public:
  CharsmapWriter(const Piece& piece, Pieces& pieces) : text_(piece.text), rewrite_(piece, pieces) {}

  /// Leaves the text up to `end` unchanged.
  void keep(size_t end) { kept_ = end; }

  /// Replaces the next text by another one.
  void replace(std::string_view old_text, std::string_view new_text) {
    flush_kept();
    const auto old_count = static_cast<std::ptrdiff_t>(count_characters(old_text));
    std::ptrdiff_t count = 0;
    for (size_t at = 0; at < new_text.size(); ++count)
      put(next_char(new_text, at), count < old_count ? 0 : 1);
    if (last_) {
      last_->change -= std::max<std::ptrdiff_t>(0, old_count - count);
    } else {
      moved_ = true;
    }
    done_ = kept_ = done_ + old_text.size();
  }

  Piece done() {
    flush_kept();
    flush_last();
    return rewrite_.done();
  }

 private:
  struct Change {
    char32_t character;
    std::ptrdiff_t change;
  };

  void put(char32_t character, std::ptrdiff_t change) {
    flush_last();
    last_ = Change{character, change};
  }
  void flush_last() {
    if (last_) rewrite_.put(last_->character, last_->change);
    last_.reset();
  }
  // Writes the unchanged text except its last character, which may take over removed text that follows it.
  void flush_kept() {
    if (done_ == kept_) return;
    const size_t last = previous_start(text_, kept_);
    if (!moved_) {
      flush_last();
      rewrite_.keep(last - done_);
      done_ = last;
    }
    while (done_ < kept_) put(next_char(text_, done_), 0);
  }

  std::string_view text_;
  Rewrite rewrite_;
  size_t done_ = 0, kept_ = 0;  // bytes of the old text
  std::optional<Change> last_;  // the character that is not written yet
  bool moved_ = false;          // whether text was removed at the start, so that the rest moves there
};

// A grapheme cluster of at most five bytes is looked up as a whole: if a text of the charsmap is a prefix of
// it, the whole cluster is replaced. Otherwise its characters are looked up one by one.
Piece normalize_by(const Charsmap& charsmap, const Piece& piece, Pieces& pieces) {
  const auto text = piece.text;
  std::optional<CharsmapWriter> writer;  // created at the first change
  const auto replaced = [&](size_t begin, size_t end) {
    const auto old_text = text.substr(begin, end - begin);
    const auto new_text = charsmap.find(old_text);
    if (!new_text) return false;
    if (!writer) writer.emplace(piece, pieces);
    writer->keep(begin);
    writer->replace(old_text, *new_text);
    return true;
  };
  const auto is_ascii = [&](size_t at) {
    return at >= text.size() || static_cast<unsigned char>(text[at]) < 0x80;
  };
  for (size_t begin = 0; begin < text.size();) {
    // Two ASCII characters are always two clusters, except "\r\n".
    if (is_ascii(begin) && is_ascii(begin + 1) && text[begin] != '\r') {
      if (charsmap.knows_ascii(text[begin])) (void)replaced(begin, begin + 1);
      ++begin;
      continue;
    }
    const size_t end = grapheme_end(text, begin);
    const bool whole = end - begin < 6 && replaced(begin, end);
    for (size_t at = begin; !whole && at < end;) {
      const size_t start = at;
      (void)next_char(text, at);
      (void)replaced(start, at);
    }
    begin = end;
  }
  if (!writer) return piece;
  writer->keep(text.size());
  return writer->done();
}

bool is_nmt_control(char32_t c) {
  return (c >= 0x01 && c <= 0x08) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F || c == 0x8F ||
         c == 0x9F;
}

bool is_nmt_space(char32_t c) {
  return c == '\t' || c == '\n' || c == '\f' || c == '\r' || c == 0x1680 || (c >= 0x200B && c <= 0x200F) ||
         c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
}

}  // namespace

Normalizer parse_prepend(const JsonView& json) {
  json.only({"type", "prepend"});
  const auto stated = json.at("prepend");
  if (stated.string().empty()) stated.unsupported("an empty text");
  return
      [text = stated.string()](const Piece& piece, Pieces& pieces) { return prepended(piece, text, pieces); };
}

Normalizer parse_replace(const JsonView& json) {
  json.only({"type", "pattern", "content"});
  return [find = parse_pattern(json.at("pattern")), content = json.at("content").string()](const Piece& piece,
                                                                                           Pieces& pieces) {
    if (piece.text.empty()) return piece;
    std::optional<Rewrite> rewrite;
    size_t done = 0;
    find(piece.text, [&](size_t begin, size_t end) {
      if (!rewrite) rewrite.emplace(piece, pieces);
      rewrite->keep(begin - done);
      rewrite->skip(count_characters(piece.text.substr(begin, end - begin)));
      for (size_t at = 0; at < content.size();) rewrite->put(next_char(content, at), 1);
      done = end;
    });
    if (!rewrite) return piece;
    rewrite->keep(piece.text.size() - done);
    return rewrite->done();
  };
}

Normalizer parse_precompiled(const JsonView& json) {
  json.only({"type", "precompiled_charsmap"});
  const auto stated = json.at("precompiled_charsmap");
  const auto& text = stated.string();
  try {
    const auto charsmap = std::make_shared<const Charsmap>(from_base64(text));
    return [charsmap](const Piece& piece, Pieces& pieces) { return normalize_by(*charsmap, piece, pieces); };
  } catch (const Refusal& refusal) {
    refuse("{}: {}", stated.path(), refusal.what());
  }
}

Piece normalize_nmt(const Piece& piece, Pieces& pieces) {
  const auto text = piece.text;
  Rewrite rewrite(piece, pieces);
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t c = next_char(text, at);
    if (is_nmt_control(c)) {
      rewrite.skip(1);
    } else if (is_nmt_space(c)) {
      rewrite.put(' ', 0);
    } else {
      rewrite.keep(at - begin);
    }
  }
  return rewrite.done();
}

Piece normalize_byte_level(const Piece& piece, Pieces& pieces) {
  const auto text = piece.text;
  Rewrite rewrite(piece, pieces);
  for (size_t i = 0; i < text.size(); ++i) {
    std::string visible;
    to_visible(text.substr(i, 1), visible);
    size_t at = 0;
    rewrite.put(next_char(visible, at), begins_character(text[i]) ? 0 : 1);
  }
  return rewrite.done();
}

}  // namespace attentive::tokenizers
