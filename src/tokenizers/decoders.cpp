#include "tokenizers/decoders.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "text/byte_pairs.h"
#include "tokenizers/pre_tokenizers.h"
#include "tokenizers/regex.h"
#include "tokenizers/unicode.h"

namespace attentive::tokenizers {

std::optional<std::string> from_visible(std::string_view token) {
  std::string bytes;
  for (size_t offset = 0; offset < token.size();) {
    const int byte = byte_of_visible(next_char(token, offset));
    if (byte < 0) return std::nullopt;
    bytes += static_cast<char>(byte);
  }
  return bytes;
}

namespace {

using Tokens = std::vector<std::string>;

// Decodes one token, for decoders that need to know only whether it is the first one.
using DecodeToken = std::function<std::string(std::string token, bool first)>;

class EachTokenStream final : public DecoderStream {
 public:
  EachTokenStream(DecodeToken decode, bool always_first)
      : decode_(std::move(decode)), always_first_(always_first) {}
  void push(std::string token, Tokens& out) override {
    out.push_back(decode_(std::move(token), first_));
    first_ = always_first_;
  }

 private:
  DecodeToken decode_;
  bool always_first_, first_ = true;
};

// Replaces each `from` in a single token that arrives in parts. It is found by the algorithm of Knuth, Morris
// and Pratt; the held bytes are always a prefix of it.
class ReplacingStream final : public DecoderStream {
 public:
  ReplacingStream(std::string from, std::string to)
      : from_(std::move(from)), to_(std::move(to)), shorter_(from_.size(), 0) {
    for (size_t i = 1, held = 0; i < from_.size(); ++i) {
      while (held > 0 && from_[held] != from_[i]) held = shorter_[held - 1];
      if (from_[held] == from_[i]) ++held;
      shorter_[i] = held;
    }
  }

  void push(std::string part, Tokens& out) override {
    std::string text;
    for (const char c : part) {
      while (held_ > 0 && from_[held_] != c) {
        text.append(from_, 0, held_ - shorter_[held_ - 1]);
        held_ = shorter_[held_ - 1];
      }
      if (from_[held_] != c) {
        text += c;
      } else if (++held_ == from_.size()) {
        text += to_;
        held_ = 0;
      }
    }
    out.push_back(std::move(text));
  }
  void finish(Tokens& out) override { out.push_back(from_.substr(0, held_)); }

 private:
  std::string from_, to_;
  std::vector<size_t> shorter_;  // the longest proper border of each prefix
  size_t held_ = 0;              // the number of bytes of from_ that are held back
};

Decoder each_token(const DecodeToken& decode) {
  return {.apply =
              [=](Tokens& tokens) {
                for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = decode(std::move(tokens[i]), i == 0);
              },
          .stream = [=](bool) { return std::make_unique<EachTokenStream>(decode, /*always_first=*/false); },
          .stream_of_one = nullptr};
}

// Makes a decoder that works on every character separately, and therefore also on parts of a token.
Decoder each_character(const DecodeToken& decode) {
  auto decoder = each_token(decode);
  decoder.stream_of_one = [=] { return std::make_unique<EachTokenStream>(decode, /*always_first=*/true); };
  return decoder;
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  if (text.find(from) == text.npos) return;
  std::string replaced;
  size_t done = 0;
  for (size_t offset = text.find(from); offset != text.npos; offset = text.find(from, done)) {
    replaced.append(text, done, offset - done);
    replaced += to;
    done = offset + from.size();
  }
  text = replaced.append(text, done);
}

// Returns the bytes of a token. A token with a character that stands for no byte is returned unchanged.
std::string bytes_of_token(std::string token) {
  auto bytes = from_visible(token);
  return bytes ? std::move(*bytes) : std::move(token);
}

void join_bytes(Tokens& tokens) {
  std::string whole;
  for (auto& token : tokens) whole += bytes_of_token(std::move(token));
  tokens.assign(1, replace_bad_utf8(std::move(whole)));
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
  std::string held_;  // the bytes of a character that is not complete yet
};

// Returns the byte of "<0x4F>", also written "<0x4f>"; as in Python, "<0x+F>" is a byte as well.
std::optional<char> byte_of_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  int value = 0;
  for (const char c : token.substr(token[3] == '+' ? 4 : 3, token[3] == '+' ? 1 : 2)) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                             : -1;
    if (digit < 0) return std::nullopt;
    value = value * 16 + digit;
  }
  return static_cast<char>(value);
}

constexpr std::string_view kBadByte = "\xEF\xBF\xBD";

// The text of a run of bytes is known when the run ends, or as soon as the run can no longer become UTF-8.
class ByteFallbackStream final : public DecoderStream {
 public:
  void push(std::string token, Tokens& out) override {
    if (const auto byte = byte_of_token(token)) return push_byte(*byte, out);
    finish(out);
    out.push_back(std::move(token));
  }
  void finish(Tokens& out) override {
    if (!character_.empty()) {
      give_up(out);
    } else if (!run_.empty()) {
      out.push_back(std::move(run_));
    }
    run_.clear();
    bad_ = false;
  }

 private:
  void push_byte(char byte, Tokens& out) {
    if (bad_) return out.push_back(std::string(kBadByte));
    run_ += byte;
    character_ += byte;
    if (is_utf8(character_)) {
      character_.clear();
    } else if (unfinished_utf8(character_) != character_.size()) {
      give_up(out);
      bad_ = true;
    }
  }
  void give_up(Tokens& out) {
    out.insert(out.end(), run_.size(), std::string(kBadByte));
    run_.clear();
    character_.clear();
  }

  std::string run_, character_;  // the bytes of the run, and those of its last, incomplete character
  bool bad_ = false;
};

// Decodes a single token that arrives in parts. It is a byte only if it has exactly six bytes, so six are
// held back.
class ByteFallbackOfOneStream final : public DecoderStream {
 public:
  void push(std::string part, Tokens& out) override {
    held_ += part;
    passes_ = passes_ || held_.size() > 6;
    if (!passes_) return;
    out.push_back(std::move(held_));
    held_.clear();
  }
  void finish(Tokens& out) override {
    if (passes_) return;
    ByteFallbackStream stream;
    stream.push(std::move(held_), out);
    stream.finish(out);
  }

 private:
  bool passes_ = false;
  std::string held_;
};

// The ByteLevel decoder joins the bytes that tokens stand for and reads them as UTF-8.
Decoder parse_byte_level_decoder(const JsonView& json) {
  json.only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  return {.apply = join_bytes,
          .stream = [](bool) { return std::make_unique<JoinBytesStream>(); },
          .stream_of_one = nullptr,
          .byte_level = true,
          .joins = true};
}

// The ByteFallback decoder replaces a run of tokens such as "<0xE2>" by the text of its bytes, or by one
// U+FFFD for each of them if the run is not UTF-8.
Decoder parse_byte_fallback_decoder(const JsonView& json) {
  json.only({"type"});
  return {.apply =
              [](Tokens& tokens) {
                ByteFallbackStream stream;
                Tokens decoded;
                for (auto& token : tokens) stream.push(std::move(token), decoded);
                stream.finish(decoded);
                tokens = std::move(decoded);
              },
          .stream = [](bool) { return std::make_unique<ByteFallbackStream>(); },
          .stream_of_one = [] { return std::make_unique<ByteFallbackOfOneStream>(); }};
}

// Removes the spaces that a tokenizer of words put before English punctuation and contractions.
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

// A space follows each word but not the last token, so the suffix of a token is held back until the next one
// arrives.
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

// The WordPiece decoder writes a space before each token that does not continue a word.
Decoder parse_word_piece_decoder(const JsonView& json) {
  json.only({"type", "prefix", "cleanup"});
  const auto prefix = json.at("prefix").string();
  const bool cleans = json.at("cleanup").boolean();
  return each_token([=](std::string token, bool first) {
    if (!first) token = token.starts_with(prefix) ? token.substr(prefix.size()) : ' ' + token;
    if (cleans) clean_up(token);
    return token;
  });
}

// The BPEDecoder writes a space after each token that ends a word.
Decoder parse_bpe_decoder(const JsonView& json) {
  json.only({"type", "suffix"});
  const auto stated = json.at("suffix");
  if (stated.string().empty()) stated.unsupported("an empty suffix");
  return {
      .apply =
          [suffix = stated.string()](Tokens& tokens) {
            for (size_t i = 0; i < tokens.size(); ++i)
              replace_all(tokens[i], suffix, i + 1 == tokens.size() ? "" : " ");
          },
      .stream = [suffix =
                     stated.string()](bool whole) { return std::make_unique<SuffixStream>(suffix, whole); },
      .stream_of_one = [suffix = stated.string()] { return std::make_unique<ReplacingStream>(suffix, ""); }};
}

struct StripRule {
  std::string character;
  int64_t start, stop;

  // Both functions remove the character at one end, at most `most` times, and return how often.
  int64_t from_start(std::string_view& text, int64_t most) const {
    int64_t count = 0;
    for (; count < most && text.starts_with(character); ++count) text.remove_prefix(character.size());
    return count;
  }
  int64_t from_end(std::string_view& text, int64_t most) const {
    int64_t count = 0;
    for (; count < most && text.ends_with(character); ++count) text.remove_suffix(character.size());
    return count;
  }
};

// Which of the last characters are removed is known only at the end of the token, so at most `stop` of them
// are held back.
class StripOfOneStream final : public DecoderStream {
 public:
  explicit StripOfOneStream(StripRule rule) : rule_(std::move(rule)), at_start_(rule_.start) {}

  void push(std::string part, Tokens& out) override {
    std::string_view text = part;
    at_start_ -= rule_.from_start(text, at_start_);
    if (text.empty()) return;
    at_start_ = 0;
    std::string_view kept = text;
    int64_t ends = rule_.from_end(kept, rule_.stop);
    // If the part consists of removable characters only, the held ones may still be at the end of the token.
    if (kept.empty()) {
      ends += held_;
      const int64_t certain = std::max<int64_t>(0, ends - rule_.stop);
      out.push_back(repeated(certain));
      held_ = ends - certain;
    } else {
      out.push_back(repeated(held_) + std::string(kept));
      held_ = ends;
    }
  }

 private:
  std::string repeated(int64_t count) const {
    std::string text;
    for (; count > 0; --count) text += rule_.character;
    return text;
  }

  StripRule rule_;
  int64_t at_start_;  // how many characters may still be removed at the start
  int64_t held_ = 0;  // how many characters are held back, and removed unless text follows
};

double size_of(const std::string& text) {
  return static_cast<double>(text.size());
}

// The Replace decoder replaces each match of a pattern in a token by a text.
Decoder parse_replace_decoder(const JsonView& json) {
  json.only({"type", "pattern", "content"});
  const auto pattern = json.at("pattern");
  const auto content = json.at("content").string();
  const auto find = parse_pattern(pattern);
  auto decoder = each_token([=](const std::string& token, bool) {
    std::string text;
    size_t done = 0;
    if (!token.empty()) {
      find(token, [&](size_t begin, size_t end) {
        text.append(token, done, begin - done);
        text += content;
        done = end;
      });
    }
    return text.append(token, done);
  });
  if (pattern.has("String") && !pattern.at("String").string().empty()) {
    decoder.stream_of_one = [from = pattern.at("String").string(), content] {
      return std::make_unique<ReplacingStream>(from, content);
    };
    decoder.growth = std::max(1.0, size_of(content) / size_of(pattern.at("String").string()));
  } else {
    decoder.growth = 1 + size_of(content);  // the pattern may match before each character
  }
  return decoder;
}

// The Strip decoder removes a character at most `start` times from the start of each token, and at most
// `stop` times from its end.
// If the stripped ends of a token overlap, Python throws; here the token becomes empty.
Decoder parse_strip_decoder(const JsonView& json) {
  json.only({"type", "content", "start", "stop"});
  const StripRule rule{json.at("content").character(), json.at("start").integer(), json.at("stop").integer()};
  auto decoder = each_token([=](const std::string& token, bool) {
    std::string_view text = token;
    (void)rule.from_start(text, rule.start);
    (void)rule.from_end(text, rule.stop);
    return std::string(text);
  });
  decoder.stream_of_one = [=] { return std::make_unique<StripOfOneStream>(rule); };
  return decoder;
}

class UnchangedStream final : public DecoderStream {
 public:
  void push(std::string token, Tokens& out) override { out.push_back(std::move(token)); }
};

// Collects the whole text for decoders that follow one that joins all tokens and whose result depends on the
// end of the text.
class WholeTextStream final : public DecoderStream {
 public:
  explicit WholeTextStream(std::span<const Decoder> decoders) : decoders_(decoders.begin(), decoders.end()) {}
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

// Passes tokens through several streams, one after the other.
class StagesStream final : public DecoderStream {
 public:
  void add(std::unique_ptr<DecoderStream> stage) { stages_.push_back(std::move(stage)); }

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

// Whether the stage before these decoders must write each token in one piece.
bool need_whole_tokens(std::span<const Decoder> decoders, bool whole) {
  for (const auto& one : decoders) {
    if (!one.only_joins) return true;
    if (one.joins) return false;  // Fuse
  }
  return whole;
}

// Adds the streams of decoders that get a single token in parts.
void add_stages_of_one(std::span<const Decoder> decoders, StagesStream& stages) {
  for (; !decoders.empty(); decoders = decoders.subspan(1)) {
    if (!decoders[0].stream_of_one) return stages.add(std::make_unique<WholeTextStream>(decoders));
    stages.add(decoders[0].stream_of_one());
  }
}

std::unique_ptr<DecoderStream> sequence_stream(std::span<const Decoder> decoders, bool whole) {
  auto stages = std::make_unique<StagesStream>();
  while (!decoders.empty()) {
    const auto& one = decoders[0];
    decoders = decoders.subspan(1);
    stages->add(one.stream(need_whole_tokens(decoders, whole)));
    if (!one.joins) continue;
    add_stages_of_one(decoders, *stages);
    break;
  }
  return stages;
}

Decoder parse_decoder_sequence(const JsonView& json) {
  json.only({"type", "decoders"});
  std::vector<Decoder> all;
  double growth = 1;
  for (const auto& item : json.at("decoders").items()) {
    if (item.is_null()) item.expected("a decoder");
    all.push_back(parse_decoder(item));
    growth *= all.back().growth;
  }
  const auto any = [&](bool Decoder::*mark) {
    return std::ranges::any_of(all, [=](const Decoder& one) { return one.*mark; });
  };
  return {.apply =
              [all](Tokens& tokens) {
                for (const auto& one : all) one.apply(tokens);
              },
          .stream = [all](bool whole) { return sequence_stream(all, whole); },
          .stream_of_one =
              [all] {
                auto stages = std::make_unique<StagesStream>();
                add_stages_of_one(all, *stages);
                return stages;
              },
          .byte_level = any(&Decoder::byte_level),
          .joins = any(&Decoder::joins),
          .only_joins = std::ranges::all_of(all, &Decoder::only_joins),
          .growth = growth};
}

void join(Tokens& tokens) {
  std::string whole;
  for (const auto& token : tokens) whole += token;
  tokens.assign(1, std::move(whole));
}

Decoder fuse() {
  return {.apply = join,
          .stream = [](bool) { return std::make_unique<UnchangedStream>(); },
          .stream_of_one = [] { return std::make_unique<UnchangedStream>(); },
          .joins = true,
          .only_joins = true};
}

// The Metaspace decoder replaces signs by spaces again.
Decoder parse_metaspace_decoder(const JsonView& json) {
  const auto rule = parse_metaspace_rule(json);
  return each_character([=](std::string token, bool first) {
    replace_all(token, rule.sign, first && rule.prepends != Prepends::Never ? "" : " ");
    return token;
  });
}

}  // namespace

Decoder parse_decoder(const JsonView& json) {
  if (json.is_null())
    return each_token([](std::string token, bool first) { return first ? token : ' ' + token; });
  const auto& type = json.type();
  if (type == "ByteLevel") return parse_byte_level_decoder(json);
  if (type == "ByteFallback") return parse_byte_fallback_decoder(json);
  if (type == "WordPiece") return parse_word_piece_decoder(json);
  if (type == "BPEDecoder") return parse_bpe_decoder(json);
  if (type == "Metaspace") return parse_metaspace_decoder(json);
  if (type == "Replace") return parse_replace_decoder(json);
  if (type == "Strip") return parse_strip_decoder(json);
  if (type == "Sequence") return parse_decoder_sequence(json);
  if (type == "Fuse") {
    json.only({"type"});
    return fuse();
  }
  json.unsupported("the decoder " + type);
}

}  // namespace attentive::tokenizers
