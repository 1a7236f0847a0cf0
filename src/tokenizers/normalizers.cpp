#include "tokenizers/normalizers.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/refusal.h"
#include "base/strings.h"
#include "text/byte_pairs.h"
#include "tokenizers/regex.h"
#include "tokenizers/unicode.h"

namespace attentive::tokenizers {
namespace {

// The charsmaps of the published models have a quarter of a megabyte.
constexpr size_t kMostCharsmapBytes = size_t{1} << 24;

// Each unit of the double array has a label and an offset. From a state s, the byte c leads to the unit s ^ c
// if that unit's label is c; its place XOR its offset is the next state. If a text ends in a state, the unit
// at the state's own index holds the text's value.
constexpr uint32_t kValueMark = uint32_t{1} << 31;
uint32_t label_of(uint32_t unit) {
  return unit & (kValueMark | 0xFF);
}
bool ends_text(uint32_t unit) {
  return (unit >> 8 & 1) != 0;
}
uint32_t offset_of(uint32_t unit) {
  return unit >> 10 << ((unit & (uint32_t{1} << 9)) >> 6);
}
uint32_t value_of(uint32_t unit) {
  return unit & (kValueMark - 1);
}

uint32_t little_endian(std::string_view bytes, size_t offset) {
  uint32_t value = 0;
  for (size_t i = 4; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[offset + i]);
  return value;
}

int sextet_of(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

}  // namespace

Charsmap::Charsmap(std::string_view bytes) {
  if (bytes.size() < 4 || bytes.size() > kMostCharsmapBytes) {
    refuse("expected a charsmap of 4 to {} bytes, got {}", kMostCharsmapBytes, bytes.size());
  }
  const size_t size = little_endian(bytes, 0);
  if (size == 0 || size % 4 != 0 || size > bytes.size() - 4) {
    refuse("expected a charsmap whose array has 4 to {} bytes in units of four, got {}", bytes.size() - 4,
           size);
  }
  units_.reserve(size / 4);
  for (size_t offset = 4; offset < 4 + size; offset += 4) units_.push_back(little_endian(bytes, offset));
  replacements_ = bytes.substr(4 + size);
  check();
  for (char32_t c = 0; c < 0x80; ++c) {
    const auto unit = units_[offset_of(units_[0]) ^ c];
    ascii_.push_back(c != 0 && label_of(unit) == c);
  }
}

void Charsmap::check() const {
  if (!is_utf8(replacements_)) refuse("expected a charsmap whose replacements are UTF-8");
  // A lookup may try every byte from a state, so its whole block of 256 units must exist.
  const auto check_state = [&](size_t state) {
    if ((state | 0xFF) >= units_.size())
      refuse("expected a charsmap of {} units, got a step to unit {}", units_.size(), state);
  };
  check_state(offset_of(units_[0]));
  for (uint32_t place = 0; place < units_.size(); ++place) {
    const auto unit = units_[place];
    if (label_of(unit) == 0 || label_of(unit) > 0xFF) continue;  // no byte leads to this unit
    const uint32_t state = place ^ offset_of(unit);
    check_state(state);
    if (!ends_text(unit)) continue;
    const auto value = value_of(units_[state]);
    if (value > replacements_.size() ||
        (value < replacements_.size() && !begins_character(replacements_[value]))) {
      refuse("expected a charsmap with {} bytes of replacements, got one at byte {}", replacements_.size(),
             value);
    }
  }
}

std::optional<std::string_view> Charsmap::find(std::string_view text) const {
  uint32_t state = offset_of(units_[0]);
  for (const char byte : text) {
    const uint32_t label = static_cast<unsigned char>(byte);
    const uint32_t place = state ^ label;
    const auto unit = units_[place];
    if (label == 0 || label_of(unit) != label) return std::nullopt;
    state = place ^ offset_of(unit);
    if (!ends_text(unit)) continue;
    const auto replacement = std::string_view(replacements_).substr(value_of(units_[state]));
    return replacement.substr(0, replacement.find('\0'));
  }
  return std::nullopt;
}

std::string from_base64(std::string_view text) {
  if (text.size() % 4 != 0) refuse("expected base64 of a multiple of four characters, got {}", text.size());
  const auto digits = text.substr(0, text.size() - (text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0));
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3);
  uint32_t bits = 0;
  int count = 0;
  for (size_t i = 0; i < digits.size(); ++i) {
    const int sextet = sextet_of(digits[i]);
    if (sextet < 0) refuse("expected base64, got another character at byte {}", i);
    bits = bits << 6 | static_cast<uint32_t>(sextet);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes += static_cast<char>(bits >> count & 0xFF);
    bits &= (uint32_t{1} << count) - 1;
  }
  if (bits != 0) refuse("expected base64 whose last bits are zero");
  return bytes;
}

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
    for (size_t offset = 0; offset < new_text.size(); ++count)
      put(next_char(new_text, offset), count < old_count ? 0 : 1);
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
  const auto is_ascii = [&](size_t offset) {
    return offset >= text.size() || static_cast<unsigned char>(text[offset]) < 0x80;
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
    for (size_t offset = begin; !whole && offset < end;) {
      const size_t start = offset;
      (void)next_char(text, offset);
      (void)replaced(start, offset);
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

// Prepend inserts a text before each text that is not empty.
Normalizer parse_prepend(const JsonView& json) {
  json.only({"type", "prepend"});
  const auto stated = json.at("prepend");
  if (stated.string().empty()) stated.unsupported("an empty text");
  return
      [text = stated.string()](const Piece& piece, Pieces& pieces) { return prepended(piece, text, pieces); };
}

// Replace replaces each match of a pattern by a text.
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
      for (size_t offset = 0; offset < content.size();) rewrite->put(next_char(content, offset), 1);
      done = end;
    });
    if (!rewrite) return piece;
    rewrite->keep(piece.text.size() - done);
    return rewrite->done();
  };
}

// Precompiled replaces grapheme clusters and characters according to a charsmap.
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

// Nmt removes control characters and replaces white space by plain spaces.
Piece normalize_nmt(const Piece& piece, Pieces& pieces) {
  const auto text = piece.text;
  Rewrite rewrite(piece, pieces);
  for (size_t offset = 0; offset < text.size();) {
    const size_t begin = offset;
    const char32_t c = next_char(text, offset);
    if (is_nmt_control(c)) {
      rewrite.skip(1);
    } else if (is_nmt_space(c)) {
      rewrite.put(' ', 0);
    } else {
      rewrite.keep(offset - begin);
    }
  }
  return rewrite.done();
}

// ByteLevel writes the bytes of a text as visible characters.
Piece normalize_byte_level(const Piece& piece, Pieces& pieces) {
  const auto text = piece.text;
  Rewrite rewrite(piece, pieces);
  for (size_t i = 0; i < text.size(); ++i) {
    std::string visible;
    to_visible(text.substr(i, 1), visible);
    size_t offset = 0;
    rewrite.put(next_char(visible, offset), begins_character(text[i]) ? 0 : 1);
  }
  return rewrite.done();
}

// Returns the piece without the characters for which `keep` is false.
template <class Keep>
Piece keep_if(const Piece& piece, Pieces& pieces, Keep keep) {
  Rewrite rewrite(piece, pieces);
  for (size_t offset = 0; offset < piece.text.size();) {
    const size_t begin = offset;
    if (keep(next_char(piece.text, offset))) {
      rewrite.keep(offset - begin);
    } else {
      rewrite.skip(1);
    }
  }
  return rewrite.done();
}

// Whether a character lies in one of the blocks that BERT calls Chinese.
bool is_chinese(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
         (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

// Returns the piece without control characters and with white space replaced by plain spaces.
Piece clean(const Piece& piece, Pieces& pieces) {
  Rewrite rewrite(piece, pieces);
  for (size_t offset = 0; offset < piece.text.size();) {
    const size_t begin = offset;
    const char32_t c = next_char(piece.text, offset);
    const bool line_end = c == '\t' || c == '\n' || c == '\r';
    if (c == 0 || c == 0xFFFD || (is_other(c) && !line_end)) {
      rewrite.skip(1);
    } else if (is_space(c)) {
      rewrite.put(' ', 0);
    } else {
      rewrite.keep(offset - begin);
    }
  }
  return rewrite.done();
}

Piece space_chinese(const Piece& piece, Pieces& pieces) {
  Rewrite rewrite(piece, pieces);
  for (size_t offset = 0; offset < piece.text.size();) {
    const size_t begin = offset;
    const char32_t c = next_char(piece.text, offset);
    if (is_chinese(c)) {
      rewrite.put(' ', 0);
      rewrite.put(c, 1);
      rewrite.put(' ', 1);
    } else {
      rewrite.keep(offset - begin);
    }
  }
  return rewrite.done();
}

Piece strip(Piece piece, bool left, bool right) {
  while (left && !piece.text.empty()) {
    size_t offset = 0;
    if (!is_space(next_char(piece.text, offset))) break;
    piece.text.remove_prefix(offset);
    if (piece.origins) piece.origins += offset;
  }
  while (right && !piece.text.empty() && is_space(previous_char(piece.text, piece.text.size()))) {
    piece.text = piece.text.substr(0, previous_start(piece.text, piece.text.size()));
  }
  return piece;
}

Piece to_form(const Piece& piece, Pieces& pieces, NormalForm form) {
  if (is_ascii(piece.text)) return piece;
  Piece normal = piece;
  if (!piece.origins) {
    normal.text = pieces.keep(normalize(piece.text, form));
    return normal;
  }
  Rewrite rewrite(piece, pieces);
  for (const auto& [c, change] : normalize_by_character(piece.text, form)) rewrite.put(c, change);
  return rewrite.done();
}

Piece to_lower(const Piece& piece, Pieces& pieces) {
  if (is_ascii(piece.text)) {
    // Letter case of ASCII does not move a byte, so the origins stay valid.
    Piece lower = piece;
    lower.text = pieces.keep(lower_case(piece.text));
    return lower;
  }
  Rewrite rewrite(piece, pieces);
  for (size_t offset = 0; offset < piece.text.size();) {
    const char32_t c = next_char(piece.text, offset);
    rewrite.put(lower_case(c), 0);
    if (c == kDottedI) rewrite.put(kDotAbove, 1);
  }
  return rewrite.done();
}

// Whether cleaning a text removes nothing and the other steps of BERT's normalizer move no byte.
bool keeps_its_bytes(std::string_view text) {
  return is_ascii(text) && std::none_of(text.begin(), text.end(), [](char c) {
           return (c < ' ' && c != '\t' && c != '\n' && c != '\r') || c == 0x7F;
         });
}

Normalizer parse_bert(const JsonView& json) {
  json.only({"type", "clean_text", "handle_chinese_chars", "strip_accents", "lowercase"});
  const bool cleans = json.at("clean_text").boolean();
  const bool chinese = json.at("handle_chinese_chars").boolean();
  const bool lowers = json.at("lowercase").boolean();
  const auto stated = json.find("strip_accents");
  const bool strips = stated ? stated->boolean() : lowers;
  return [=](const Piece& given, Pieces& pieces) {
    Piece piece = given;
    if (keeps_its_bytes(piece.text)) {
      std::string text = lowers ? lower_case(piece.text) : std::string(piece.text);
      if (cleans)
        std::replace_if(
            text.begin(), text.end(), [](char c) { return c < ' '; }, ' ');
      piece.text = pieces.keep(std::move(text));
      return piece;
    }
    if (cleans) piece = clean(piece, pieces);
    if (chinese) piece = space_chinese(piece, pieces);
    if (strips)
      piece = keep_if(to_form(piece, pieces, NormalForm::D), pieces,
                      [](char32_t c) { return !is_nonspacing_mark(c); });
    if (lowers) piece = to_lower(piece, pieces);
    return piece;
  };
}

Normalizer parse_normalizer_sequence(const JsonView& json) {
  json.only({"type", "normalizers"});
  std::vector<Normalizer> all;
  for (const auto& item : json.at("normalizers").items()) {
    if (item.is_null()) item.expected("a normalizer");
    all.push_back(parse_normalizer(item));
  }
  return [all](const Piece& given, Pieces& pieces) {
    Piece piece = given;
    for (const auto& one : all) piece = one(piece, pieces);
    return piece;
  };
}

Normalizer parse_strip(const JsonView& json) {
  json.only({"type", "strip_left", "strip_right"});
  const bool left = json.at("strip_left").boolean(), right = json.at("strip_right").boolean();
  return [=](const Piece& piece, Pieces&) { return strip(piece, left, right); };
}

}  // namespace

Normalizer parse_normalizer(const JsonView& json) {
  if (json.is_null()) return nullptr;
  const auto& type = json.type();
  if (type == "BertNormalizer") return parse_bert(json);
  if (type == "Sequence") return parse_normalizer_sequence(json);
  if (type == "Strip") return parse_strip(json);
  if (type == "Precompiled") return parse_precompiled(json);
  if (type == "Prepend") return parse_prepend(json);
  if (type == "Replace") return parse_replace(json);
  const auto plain = [&](Normalizer normalizer) {
    json.only({"type"});
    return normalizer;
  };
  const auto to = [&](NormalForm form) {
    return plain([form](const Piece& piece, Pieces& pieces) { return to_form(piece, pieces, form); });
  };
  if (type == "NFC") return to(NormalForm::C);
  if (type == "NFD") return to(NormalForm::D);
  if (type == "NFKC") return to(NormalForm::KC);
  if (type == "NFKD") return to(NormalForm::KD);
  if (type == "Lowercase") return plain(to_lower);
  if (type == "Nmt") return plain(normalize_nmt);
  if (type == "ByteLevel") return plain(normalize_byte_level);
  if (type == "StripAccents") {
    return plain([](const Piece& piece, Pieces& pieces) {
      return keep_if(piece, pieces, [](char32_t c) { return !is_mark(c); });
    });
  }
  json.unsupported("the normalizer " + type);
}

std::string normalized_text(const Normalizer& normalizer, std::string_view text) {
  if (!normalizer) return std::string(text);
  Pieces pieces(text.size());
  return std::string(normalizer(Piece{text}, pieces).text);
}

}  // namespace attentive::tokenizers
