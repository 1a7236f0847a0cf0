#include <algorithm>
#include <optional>

#include "tokenizers/decoders.h"
#include "tokenizers/pattern.h"
#include "tokenizers/pre_tokenizer.h"
#include "tokenizers/token_decoder.h"
#include "tokenizers/unicode.h"

namespace attentive::tokenizers {
namespace {

enum class Prepends { Always, First, Never };

struct MetaspaceRule {
  std::string sign;  // one character
  Prepends prepends = Prepends::Always;
  bool cuts = true;
};

MetaspaceRule parse_rule(const JsonView& json) {
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

}  // namespace

PreTokenizer parse_metaspace(const JsonView& json) {
  const auto rule = parse_rule(json);
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

bool signs_beginning_only(const JsonView& pre_tokenizer) {
  if (pre_tokenizer.is_null()) return false;
  if (pre_tokenizer.type() == "Metaspace") return parse_rule(pre_tokenizer).prepends == Prepends::First;
  return pre_tokenizer.type() == "Sequence" &&
         std::ranges::any_of(pre_tokenizer.at("pretokenizers").items(), signs_beginning_only);
}

Decoder parse_metaspace_decoder(const JsonView& json) {
  const auto rule = parse_rule(json);
  return each_character([=](std::string token, bool first) {
    replace_all(token, rule.sign, first && rule.prepends != Prepends::Never ? "" : " ");
    return token;
  });
}

}  // namespace attentive::tokenizers
