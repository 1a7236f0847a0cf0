#include "tokenizers/pre_tokenizers.h"

#include <algorithm>

#include "base/refusal.h"
#include "text/byte_pairs.h"
#include "tokenizers/regex.h"
#include "tokenizers/unicode.h"

namespace attentive::tokenizers {

MetaspaceRule parse_metaspace_rule(const JsonView& json) {
  json.only({"type", "replacement", "prepend_scheme", "add_prefix_space", "split", "str_rep"});
  MetaspaceRule rule;
  rule.sign = json.at("replacement").character();
  if (json.has("prepend_scheme")) {
    const auto scheme = json.at("prepend_scheme");
    const auto& name = scheme.string();
    if (name == "first") {
      rule.prepends = Prepends::First;
    } else if (name == "never") {
      rule.prepends = Prepends::Never;
    } else if (name != "always") {
      scheme.unsupported("the scheme " + name);
    }
  }
  // Older files state add_prefix_space beside prepend_scheme, which it must not contradict.
  const auto prefix = json.find("add_prefix_space");
  if (prefix && !prefix->boolean() && rule.prepends != Prepends::Never) {
    prefix->expected("true unless prepend_scheme is \"never\"");
  }
  if (const auto split = json.find("split")) rule.cuts = split->boolean();
  return rule;
}

namespace {

// Writes every piece of text as visible characters.
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
      for (size_t offset = 0; offset < visible.text.size(); ++offset) {
        if (offset > 0 && begins_character(visible.text[offset])) ++byte;
        origins.push_back(piece.origins[byte]);
      }
    }
    out.push_back(visible);
  });
}

Piece with_signs(const Piece& piece, std::string_view sign, Pieces& pieces) {
  const auto text = piece.text;
  size_t space = text.find(' ');
  if (space == text.npos) return piece;
  size_t ignored = 0;
  const char32_t character = next_char(sign, ignored);
  Rewrite rewrite(piece, pieces);
  size_t done = 0;
  for (; space != text.npos; space = text.find(' ', done)) {
    rewrite.keep(space - done);
    rewrite.put(character, 0);
    done = space + 1;
  }
  rewrite.keep(text.size() - done);
  return rewrite.done();
}

// The Metaspace pre-tokenizer writes SentencePiece's sign for a space (U+2581) in place of each space, and
// before a text that does not begin with one; words are cut before the sign.
PreTokenizer parse_metaspace(const JsonView& json) {
  const auto rule = parse_metaspace_rule(json);
  const auto find = matches_of_text(rule.sign);
  return [=](Pieces& pieces) {
    pieces.change_text([&](const Piece& given, std::vector<Piece>& out) {
      const auto piece = with_signs(given, rule.sign, pieces);
      const bool here =
          rule.prepends == Prepends::Always || (rule.prepends == Prepends::First && given.begin == 0);
      out.push_back(here && !piece.text.starts_with(rule.sign) ? prepended(piece, rule.sign, pieces) : piece);
    });
    if (rule.cuts) cut(pieces, find, /*invert=*/false, Behavior::MergedWithNext);
  };
}

constexpr std::string_view kByteLevelPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Matches runs of word characters, and runs of characters that are neither word characters nor white space.
void words_and_signs(std::string_view text, const VisitMatch& visit) {
  const auto kind = [](char32_t c) { return is_word(c) ? 1 : is_space(c) ? 0 : 2; };
  size_t begin = 0;
  int run = 0;
  for (size_t offset = 0; offset < text.size();) {
    const size_t start = offset;
    const int next = kind(next_char(text, offset));
    if (next != run) {
      if (run != 0) visit(begin, start);
      begin = start;
      run = next;
    }
  }
  if (run != 0) visit(begin, text.size());
}

Behavior parse_behavior(const JsonView& json) {
  const auto& name = json.string();
  if (name == "Removed") return Behavior::Removed;
  if (name == "Isolated") return Behavior::Isolated;
  if (name == "MergedWithPrevious") return Behavior::MergedWithPrevious;
  if (name == "MergedWithNext") return Behavior::MergedWithNext;
  if (name == "Contiguous") return Behavior::Contiguous;
  json.unsupported("the behavior " + name);
}

PreTokenizer parse_byte_level(const JsonView& json) {
  json.only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  const bool prefix = json.at("add_prefix_space").boolean();
  (void)json.at("trim_offsets").boolean();  // used only by the post-processor of the same name
  const bool cuts = !json.has("use_regex") || json.at("use_regex").boolean();
  const auto find = matches_of(Regex(kByteLevelPattern));
  return [=](Pieces& pieces) {
    if (prefix) {
      pieces.change_text([&](const Piece& piece, std::vector<Piece>& out) {
        out.push_back(piece.text.starts_with(' ') ? piece : prepended(piece, " ", pieces));
      });
    }
    if (cuts) cut(pieces, find, /*invert=*/false, Behavior::Isolated);
    make_visible(pieces);
  };
}

PreTokenizer parse_split(const JsonView& json) {
  json.only({"type", "pattern", "behavior", "invert"});
  const auto find = parse_pattern(json.at("pattern"));
  const auto behavior = parse_behavior(json.at("behavior"));
  const bool invert = json.at("invert").boolean();
  return [=](Pieces& pieces) { cut(pieces, find, invert, behavior); };
}

PreTokenizer parse_digits(const JsonView& json) {
  json.only({"type", "individual_digits"});
  const auto behavior = json.at("individual_digits").boolean() ? Behavior::Isolated : Behavior::Contiguous;
  return [=](Pieces& pieces) { cut(pieces, each_char(is_numeric), false, behavior); };
}

PreTokenizer parse_punctuation(const JsonView& json) {
  json.only({"type", "behavior"});
  const auto behavior = json.has("behavior") ? parse_behavior(json.at("behavior")) : Behavior::Isolated;
  return [=](Pieces& pieces) { cut(pieces, each_char(is_punctuation), false, behavior); };
}

PreTokenizer parse_char_delimiter(const JsonView& json) {
  json.only({"type", "delimiter"});
  return [find = matches_of_text(json.at("delimiter").character())](Pieces& pieces) {
    cut(pieces, find, /*invert=*/false, Behavior::Removed);
  };
}

PreTokenizer parse_fixed_length(const JsonView& json) {
  json.only({"type", "length"});
  const auto length = json.has("length") ? json.at("length").integer(1) : 5;
  const FindMatches find = [=](std::string_view text, const VisitMatch& visit) {
    size_t begin = 0;
    int64_t count = 0;
    for (size_t offset = 0; offset < text.size();) {
      (void)next_char(text, offset);
      if (++count < length && offset < text.size()) continue;
      visit(begin, offset);
      begin = offset;
      count = 0;
    }
  };
  return [=](Pieces& pieces) { cut(pieces, find, /*invert=*/false, Behavior::Isolated); };
}

PreTokenizer parse_pre_tokenizer_sequence(const JsonView& json) {
  json.only({"type", "pretokenizers"});
  std::vector<PreTokenizer> all;
  for (const auto& item : json.at("pretokenizers").items()) {
    if (item.is_null()) item.expected("a pre-tokenizer");
    all.push_back(parse_pre_tokenizer(item));
  }
  return [all](Pieces& pieces) {
    for (const auto& one : all) one(pieces);
  };
}

}  // namespace

PreTokenizer parse_pre_tokenizer(const JsonView& json) {
  if (json.is_null()) return nullptr;
  const auto& type = json.type();
  if (type == "ByteLevel") return parse_byte_level(json);
  if (type == "Split") return parse_split(json);
  if (type == "Digits") return parse_digits(json);
  if (type == "Punctuation") return parse_punctuation(json);
  if (type == "Sequence") return parse_pre_tokenizer_sequence(json);
  if (type == "Metaspace") return parse_metaspace(json);
  if (type == "CharDelimiterSplit") return parse_char_delimiter(json);
  if (type == "FixedLength") return parse_fixed_length(json);
  const auto plain = [&](PreTokenizer pre_tokenizer) {
    json.only({"type"});
    return pre_tokenizer;
  };
  if (type == "Whitespace") {
    return plain([](Pieces& pieces) { cut(pieces, words_and_signs, /*invert=*/true, Behavior::Removed); });
  }
  if (type == "WhitespaceSplit") {
    return plain([](Pieces& pieces) { cut(pieces, each_char(is_space), false, Behavior::Removed); });
  }
  if (type == "BertPreTokenizer") {
    return plain([](Pieces& pieces) {
      cut(pieces, each_char(is_space), false, Behavior::Removed);
      cut(pieces, each_char(is_punctuation), false, Behavior::Isolated);
    });
  }
  json.unsupported("the pre-tokenizer " + type);
}

bool signs_beginning_only(const JsonView& pre_tokenizer) {
  if (pre_tokenizer.is_null()) return false;
  if (pre_tokenizer.type() == "Metaspace")
    return parse_metaspace_rule(pre_tokenizer).prepends == Prepends::First;
  return pre_tokenizer.type() == "Sequence" &&
         std::ranges::any_of(pre_tokenizer.at("pretokenizers").items(), signs_beginning_only);
}

}  // namespace attentive::tokenizers
