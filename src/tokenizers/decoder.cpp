#include "tokenizers/decoder.h"

#include <array>
#include <utility>

#include "base/strings.h"
#include "tokenizers/byte_level.h"
#include "tokenizers/unicode.h"

namespace attentive::tokenizers {
namespace {

using Tokens = std::vector<std::string>;

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  if (text.find(from) == text.npos) return;
  std::string replaced;
  size_t done = 0;
  for (size_t at = text.find(from); at != text.npos; at = text.find(from, done)) {
    replaced.append(text, done, at - done);
    replaced += to;
    done = at + from.size();
  }
  text = replaced.append(text, done);
}

// The spaces that a tokenizer of words put before English punctuation and contractions.
void clean_up(std::string& text) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 11> kRules = {
      {{" .", "."},
       {" ?", "?"},
       {" !", "!"},
       {" ,", ","},
       {" ' ", "'"},
       {" n't", "n't"},
       {" 'm", "'m"},
       {" do not", " don't"},
       {" 's", "'s"},
       {" 've", "'ve"},
       {" 're", "'re"}}};
  for (const auto& [from, to] : kRules) replace_all(text, from, to);
}

void join(Tokens& tokens, std::string_view between = "") {
  std::string whole;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0) whole += between;
    whole += tokens[i];
  }
  tokens.assign(1, std::move(whole));
}

void join_bytes(Tokens& tokens) {
  for (auto& token : tokens) {
    if (auto bytes = from_visible(token)) token = std::move(*bytes);
  }
  join(tokens);
  tokens.front() = replace_bad_utf8(std::move(tokens.front()));
}

Decoder parse_byte_level_decoder(const JsonView& json) {
  json.only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  return {join_bytes, true};
}

Decoder parse_word_piece(const JsonView& json) {
  json.only({"type", "prefix", "cleanup"});
  const auto prefix = json.at("prefix").string();
  const bool cleans = json.at("cleanup").boolean();
  return {[=](Tokens& tokens) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (i > 0)
        tokens[i] = tokens[i].starts_with(prefix) ? tokens[i].substr(prefix.size()) : ' ' + tokens[i];
      if (cleans) clean_up(tokens[i]);
    }
  }};
}

Decoder parse_bpe(const JsonView& json) {
  json.only({"type", "suffix"});
  const auto suffix = json.at("suffix");
  if (suffix.string().empty()) suffix.unsupported("an empty suffix");
  return {[suffix = suffix.string()](Tokens& tokens) {
    for (size_t i = 0; i < tokens.size(); ++i)
      replace_all(tokens[i], suffix, i + 1 == tokens.size() ? "" : " ");
  }};
}

Decoder parse_decoder_sequence(const JsonView& json) {
  json.only({"type", "decoders"});
  std::vector<Decoder> all;
  bool byte_level = false;
  for (const auto& item : json.at("decoders").items()) {
    if (item.is_null()) item.expected("a decoder");
    all.push_back(parse_decoder(item));
    byte_level = byte_level || all.back().byte_level;
  }
  return {[all](Tokens& tokens) {
            for (const auto& one : all) one.apply(tokens);
          },
          byte_level};
}

}  // namespace

Decoder parse_decoder(const JsonView& json) {
  if (json.is_null()) return {[](Tokens& tokens) { join(tokens, " "); }};
  const auto& type = json.type();
  if (type == "ByteLevel") return parse_byte_level_decoder(json);
  if (type == "WordPiece") return parse_word_piece(json);
  if (type == "BPEDecoder") return parse_bpe(json);
  if (type == "Sequence") return parse_decoder_sequence(json);
  if (type == "Fuse") {
    json.only({"type"});
    return {[](Tokens& tokens) { join(tokens); }};
  }
  json.unsupported("the decoder " + type);
}

}  // namespace attentive::tokenizers
