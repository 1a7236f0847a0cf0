#include <optional>
#include <utility>

#include "base/strings.h"
#include "tokenizers/byte_level.h"
#include "tokenizers/decoders.h"

namespace attentive::tokenizers {
namespace {

using ByteTokens = std::vector<std::string>;

// Returns the bytes of a token. A token with a character that stands for no byte is returned unchanged.
std::string bytes_of_token(std::string token) {
  auto bytes = from_visible(token);
  return bytes ? std::move(*bytes) : std::move(token);
}

void join_bytes(ByteTokens& tokens) {
  std::string whole;
  for (auto& token : tokens) whole += bytes_of_token(std::move(token));
  tokens.assign(1, replace_bad_utf8(std::move(whole)));
}

class JoinBytesStream final : public DecoderStream {
 public:
  void push(std::string token, ByteTokens& out) override {
    held_ += bytes_of_token(std::move(token));
    const auto certain = held_.size() - unfinished_utf8(held_);
    out.push_back(replace_bad_utf8(held_.substr(0, certain)));
    held_.erase(0, certain);
  }
  void finish(ByteTokens& out) override { out.push_back(replace_bad_utf8(std::move(held_))); }

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
  void push(std::string token, ByteTokens& out) override {
    if (const auto byte = byte_of_token(token)) return push_byte(*byte, out);
    finish(out);
    out.push_back(std::move(token));
  }
  void finish(ByteTokens& out) override {
    if (!character_.empty()) {
      give_up(out);
    } else if (!run_.empty()) {
      out.push_back(std::move(run_));
    }
    run_.clear();
    bad_ = false;
  }

 private:
  void push_byte(char byte, ByteTokens& out) {
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
  void give_up(ByteTokens& out) {
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
  void push(std::string part, ByteTokens& out) override {
    held_ += part;
    passes_ = passes_ || held_.size() > 6;
    if (!passes_) return;
    out.push_back(std::move(held_));
    held_.clear();
  }
  void finish(ByteTokens& out) override {
    if (passes_) return;
    ByteFallbackStream stream;
    stream.push(std::move(held_), out);
    stream.finish(out);
  }

 private:
  bool passes_ = false;
  std::string held_;
};

}  // namespace

Decoder parse_byte_level_decoder(const JsonView& json) {
  json.only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  return {.apply = join_bytes,
          .stream = [](bool) { return std::make_unique<JoinBytesStream>(); },
          .stream_of_one = nullptr,
          .byte_level = true,
          .joins = true};
}

Decoder parse_byte_fallback_decoder(const JsonView& json) {
  json.only({"type"});
  return {.apply =
              [](ByteTokens& tokens) {
                ByteFallbackStream stream;
                ByteTokens decoded;
                for (auto& token : tokens) stream.push(std::move(token), decoded);
                stream.finish(decoded);
                tokens = std::move(decoded);
              },
          .stream = [](bool) { return std::make_unique<ByteFallbackStream>(); },
          .stream_of_one = [] { return std::make_unique<ByteFallbackOfOneStream>(); }};
}

}  // namespace attentive::tokenizers
