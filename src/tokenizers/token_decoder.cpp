#include "tokenizers/token_decoder.h"

#include <utility>
#include <vector>

namespace attentive::tokenizers {
namespace {

class EachTokenStream final : public DecoderStream {
 public:
  EachTokenStream(DecodeToken decode, bool always_first)
      : decode_(std::move(decode)), always_first_(always_first) {}
  void push(std::string token, std::vector<std::string>& out) override {
    out.push_back(decode_(std::move(token), first_));
    first_ = always_first_;
  }

 private:
  DecodeToken decode_;
  bool always_first_, first_ = true;
};

// Finds the text by the algorithm of Knuth, Morris and Pratt; the held bytes are always a prefix of it.
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

  void push(std::string part, std::vector<std::string>& out) override {
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
  void finish(std::vector<std::string>& out) override { out.push_back(from_.substr(0, held_)); }

 private:
  std::string from_, to_;
  std::vector<size_t> shorter_;  // the longest proper border of each prefix
  size_t held_ = 0;              // the number of bytes of from_ that are held back
};

}  // namespace

Decoder each_token(const DecodeToken& decode) {
  return {.apply =
              [=](std::vector<std::string>& tokens) {
                for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = decode(std::move(tokens[i]), i == 0);
              },
          .stream = [=](bool) { return std::make_unique<EachTokenStream>(decode, /*always_first=*/false); },
          .stream_of_one = nullptr};
}

Decoder each_character(const DecodeToken& decode) {
  auto decoder = each_token(decode);
  decoder.stream_of_one = [=] { return std::make_unique<EachTokenStream>(decode, /*always_first=*/true); };
  return decoder;
}

std::unique_ptr<DecoderStream> replacing_stream(std::string from, std::string to) {
  return std::make_unique<ReplacingStream>(std::move(from), std::move(to));
}

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

}  // namespace attentive::tokenizers
