#include <algorithm>

#include <c10/util/Exception.h>

#include <attentive/text/streaming_decoder.h>
#include <attentive/text/tokenizer.h>

#include "base/strings.h"

namespace attentive {
namespace {

constexpr const char* kStreamingDecoder = "StreamingDecoder";

bool continues_character(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
}

// Returns the tokens' bytes unchanged, except that a character's bytes are returned together.
class BytesDecoder final : public StreamingDecoder {
 public:
  BytesDecoder(const Tokenizer& tokenizer, bool skip_special_tokens)
      : tokenizer_(tokenizer), skips_(skip_special_tokens) {}

 private:
  std::string next_text(int64_t id) override {
    held_ += shown_bytes(id);
    const auto certain = held_.size() - unfinished_utf8(held_);
    auto text = held_.substr(0, certain);
    held_.erase(0, certain);
    return text;
  }

  std::string last_text() override { return std::move(held_); }

  std::string whole_text(std::span<const int64_t> ids) const override {
    std::string text;
    for (const auto id : ids) text += shown_bytes(id);
    return text;
  }

  // Throws for an id without meaning, be it special or not.
  std::string_view shown_bytes(int64_t id) const {
    const auto bytes = tokenizer_.bytes(id);
    return skips_ && tokenizer_.is_special(id) ? std::string_view() : bytes;
  }

  const Tokenizer& tokenizer_;
  bool skips_;
  std::string held_;
};

}  // namespace

void StreamingDecoder::follow(std::span<const int64_t> ids) {
  TORCH_CHECK_VALUE(state_ == State::Fresh, kStreamingDecoder,
                    ": expected follow before any other call, got it after one");
  seen_ = whole_text(ids);  // throws for an invalid id before anything changes
  size_t certain = 0;
  for (const auto id : ids) certain += next_text(id).size();
  seen_.erase(0, certain);
  state_ = State::Open;
}

std::string StreamingDecoder::push(int64_t id) {
  TORCH_CHECK_VALUE(state_ != State::Finished, kStreamingDecoder,
                    ": expected no push after finish, got the token ", id);
  auto text = unseen(next_text(id));
  state_ = State::Open;
  return text;
}

std::string StreamingDecoder::finish() {
  TORCH_CHECK_VALUE(state_ != State::Finished, kStreamingDecoder,
                    ": expected one call of finish, got another one");
  state_ = State::Finished;
  return unseen(last_text());
}

// Removes the text that was output already. If the two differ (for instance where half a character has become
// a whole one), the text is new from that character on.
std::string StreamingDecoder::unseen(std::string text) {
  const auto [here, there] = std::ranges::mismatch(text, seen_);
  auto common = static_cast<size_t>(here - text.begin());
  if (here == text.end() || there == seen_.end()) {
    seen_.erase(0, common);
  } else {
    while (common > 0 && continues_character(text[common])) --common;
    seen_.clear();
  }
  return text.erase(0, common);
}

std::unique_ptr<StreamingDecoder> Tokenizer::streaming_decoder(bool skip_special_tokens) const {
  return std::make_unique<BytesDecoder>(*this, skip_special_tokens);
}

}  // namespace attentive
