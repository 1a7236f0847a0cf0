#include "tokenizers/normalizer.h"

#include <algorithm>

#include "tokenizers/sentence_normalizers.h"
#include "tokenizers/unicode.h"

namespace attentive::tokenizers {
namespace {

// Returns the piece without the characters for which `keep` is false.
template <class Keep>
Piece keep_if(const Piece& piece, Pieces& pieces, Keep keep) {
  Rewrite rewrite(piece, pieces);
  for (size_t at = 0; at < piece.text.size();) {
    const size_t begin = at;
    if (keep(next_char(piece.text, at))) {
      rewrite.keep(at - begin);
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
  for (size_t at = 0; at < piece.text.size();) {
    const size_t begin = at;
    const char32_t c = next_char(piece.text, at);
    const bool line_end = c == '\t' || c == '\n' || c == '\r';
    if (c == 0 || c == 0xFFFD || (is_other(c) && !line_end)) {
      rewrite.skip(1);
    } else if (is_space(c)) {
      rewrite.put(' ', 0);
    } else {
      rewrite.keep(at - begin);
    }
  }
  return rewrite.done();
}

Piece space_chinese(const Piece& piece, Pieces& pieces) {
  Rewrite rewrite(piece, pieces);
  for (size_t at = 0; at < piece.text.size();) {
    const size_t begin = at;
    const char32_t c = next_char(piece.text, at);
    if (is_chinese(c)) {
      rewrite.put(' ', 0);
      rewrite.put(c, 1);
      rewrite.put(' ', 1);
    } else {
      rewrite.keep(at - begin);
    }
  }
  return rewrite.done();
}

Piece strip(Piece piece, bool left, bool right) {
  while (left && !piece.text.empty()) {
    size_t at = 0;
    if (!is_space(next_char(piece.text, at))) break;
    piece.text.remove_prefix(at);
    if (piece.origins) piece.origins += at;
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
  for (size_t at = 0; at < piece.text.size();) {
    const char32_t c = next_char(piece.text, at);
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
