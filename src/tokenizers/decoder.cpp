#include "tokenizers/decoder.h"

#include <algorithm>
#include <array>
#include <optional>
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

void join(Tokens& tokens) {
  std::string whole;
  for (const auto& token : tokens) whole += token;
  tokens.assign(1, std::move(whole));
}

// The bytes of a token; one that holds another character is text as it is.
std::string bytes_of_token(std::string token) {
  auto bytes = from_visible(token);
  return bytes ? std::move(*bytes) : std::move(token);
}

void join_bytes(Tokens& tokens) {
  for (auto& token : tokens) token = bytes_of_token(std::move(token));
  join(tokens);
  tokens.front() = replace_bad_utf8(std::move(tokens.front()));
}

class JoinBytesStream final : public DecoderStream {
 public:
  void push(std::string token, Tokens& out) override {
    held_ += bytes_of_token(std::move(token));
    const auto certain = held_.size() - unfinished_utf8(held_);
    out.push_back(replace_bad_utf8(held_.substr(0, certain)));
    held_.erase(0, certain);
  }
  void finish(Tokens& out) override { out.push_back(replace_bad_utf8(std::move(held_))); }

 private:
  std::string held_;  // of a character that is not whole yet
};

Decoder parse_byte_level_decoder(const JsonView& json) {
  json.only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  return {.apply = join_bytes,
          .stream = [](bool) { return std::make_unique<JoinBytesStream>(); },
          .byte_level = true,
          .joins = true};
}

// For what a token becomes that needs to know only whether it is the first one.
using OneToken = std::function<std::string(std::string token, bool first)>;

class EachTokenStream final : public DecoderStream {
 public:
  explicit EachTokenStream(OneToken decoded) : decoded_(std::move(decoded)) {}
  void push(std::string token, Tokens& out) override {
    out.push_back(decoded_(std::move(token), first_));
    first_ = false;
  }

 private:
  OneToken decoded_;
  bool first_ = true;
};

Decoder each_token(const OneToken& decoded) {
  return {.apply =
              [=](Tokens& tokens) {
                for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = decoded(std::move(tokens[i]), i == 0);
              },
          .stream = [=](bool) { return std::make_unique<EachTokenStream>(decoded); }};
}

Decoder parse_word_piece(const JsonView& json) {
  json.only({"type", "prefix", "cleanup"});
  const auto prefix = json.at("prefix").string();
  const bool cleans = json.at("cleanup").boolean();
  return each_token([=](std::string token, bool first) {
    if (!first) token = token.starts_with(prefix) ? token.substr(prefix.size()) : ' ' + token;
    if (cleans) clean_up(token);
    return token;
  });
}

// Behind a word is a space, but not behind the last token: the suffix of a token waits for the next one.
class SuffixStream final : public DecoderStream {
 public:
  SuffixStream(std::string suffix, bool whole) : suffix_(std::move(suffix)), whole_(whole) {}

  void push(std::string token, Tokens& out) override {
    release(" ", out);
    const auto certain = whole_ ? 0 : std::min(token.find(suffix_), token.size());
    if (certain > 0) out.push_back(token.substr(0, certain));
    held_ = token.substr(certain);
  }
  void finish(Tokens& out) override { release("", out); }

 private:
  void release(std::string_view end_of_word, Tokens& out) {
    if (!held_) return;
    replace_all(*held_, suffix_, end_of_word);
    out.push_back(std::move(*held_));
    held_.reset();
  }

  std::string suffix_;
  bool whole_;
  std::optional<std::string> held_;
};

Decoder parse_bpe(const JsonView& json) {
  json.only({"type", "suffix"});
  const auto suffix = json.at("suffix");
  if (suffix.string().empty()) suffix.unsupported("an empty suffix");
  return {.apply =
              [suffix = suffix.string()](Tokens& tokens) {
                for (size_t i = 0; i < tokens.size(); ++i)
                  replace_all(tokens[i], suffix, i + 1 == tokens.size() ? "" : " ");
              },
          .stream = [suffix = suffix.string()](
                        bool whole) { return std::make_unique<SuffixStream>(suffix, whole); }};
}

class UnchangedStream final : public DecoderStream {
 public:
  void push(std::string token, Tokens& out) override { out.push_back(std::move(token)); }
};

// For decoders behind one that makes a single token of all: only the end shows what that token is.
class WholeTextStream final : public DecoderStream {
 public:
  explicit WholeTextStream(std::vector<Decoder> decoders) : decoders_(std::move(decoders)) {}
  void push(std::string token, Tokens&) override { text_ += token; }
  void finish(Tokens& out) override {
    Tokens tokens{std::move(text_)};
    for (const auto& one : decoders_) one.apply(tokens);
    out.insert(out.end(), tokens.begin(), tokens.end());
  }

 private:
  std::vector<Decoder> decoders_;
  std::string text_;
};

class SequenceStream final : public DecoderStream {
 public:
  SequenceStream(const std::vector<Decoder>& all, bool whole) {
    for (auto one = all.begin(); one != all.end(); ++one) {
      const bool last =
          std::all_of(one + 1, all.end(), [](const Decoder& decoder) { return decoder.only_joins; });
      stages_.push_back(one->stream(whole || !last));
      if (last) return;
      if (!one->joins) continue;
      stages_.push_back(std::make_unique<WholeTextStream>(std::vector<Decoder>(one + 1, all.end())));
      return;
    }
  }

  void push(std::string token, Tokens& out) override {
    Tokens tokens{std::move(token)};
    for (const auto& stage : stages_) tokens = pushed(*stage, std::move(tokens));
    out.insert(out.end(), tokens.begin(), tokens.end());
  }
  void finish(Tokens& out) override {
    Tokens tokens;
    for (const auto& stage : stages_) {
      tokens = pushed(*stage, std::move(tokens));
      stage->finish(tokens);
    }
    out.insert(out.end(), tokens.begin(), tokens.end());
  }

 private:
  static Tokens pushed(DecoderStream& stage, Tokens tokens) {
    Tokens out;
    for (auto& token : tokens) stage.push(std::move(token), out);
    return out;
  }

  std::vector<std::unique_ptr<DecoderStream>> stages_;
};

Decoder parse_decoder_sequence(const JsonView& json) {
  json.only({"type", "decoders"});
  std::vector<Decoder> all;
  for (const auto& item : json.at("decoders").items()) {
    if (item.is_null()) item.expected("a decoder");
    all.push_back(parse_decoder(item));
  }
  const auto any = [&](bool Decoder::*mark) {
    return std::ranges::any_of(all, [=](const Decoder& one) { return one.*mark; });
  };
  return {.apply =
              [all](Tokens& tokens) {
                for (const auto& one : all) one.apply(tokens);
              },
          .stream = [all](bool whole) { return std::make_unique<SequenceStream>(all, whole); },
          .byte_level = any(&Decoder::byte_level),
          .joins = any(&Decoder::joins),
          .only_joins = std::ranges::all_of(all, &Decoder::only_joins)};
}

Decoder fuse() {
  return {.apply = [](Tokens& tokens) { join(tokens); },
          .stream = [](bool) { return std::make_unique<UnchangedStream>(); },
          .joins = true,
          .only_joins = true};
}

}  // namespace

Decoder parse_decoder(const JsonView& json) {
  if (json.is_null())
    return each_token([](std::string token, bool first) { return first ? token : ' ' + token; });
  const auto& type = json.type();
  if (type == "ByteLevel") return parse_byte_level_decoder(json);
  if (type == "WordPiece") return parse_word_piece(json);
  if (type == "BPEDecoder") return parse_bpe(json);
  if (type == "Sequence") return parse_decoder_sequence(json);
  if (type == "Fuse") {
    json.only({"type"});
    return fuse();
  }
  json.unsupported("the decoder " + type);
}

}  // namespace attentive::tokenizers
