#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "tokenizers/decoders.h"
#include "tokenizers/token_decoder.h"

namespace attentive::tokenizers {
namespace {

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

  void push(std::string token, std::vector<std::string>& out) override {
    release(" ", out);
    const auto certain = whole_ ? 0 : std::min(token.find(suffix_), token.size());
    if (certain > 0) out.push_back(token.substr(0, certain));
    held_ = token.substr(certain);
  }
  void finish(std::vector<std::string>& out) override { release("", out); }

 private:
  void release(std::string_view end_of_word, std::vector<std::string>& out) {
    if (!held_) return;
    replace_all(*held_, suffix_, end_of_word);
    out.push_back(std::move(*held_));
    held_.reset();
  }

  std::string suffix_;
  bool whole_;
  std::optional<std::string> held_;
};

}  // namespace

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

Decoder parse_bpe_decoder(const JsonView& json) {
  json.only({"type", "suffix"});
  const auto stated = json.at("suffix");
  if (stated.string().empty()) stated.unsupported("an empty suffix");
  return {.apply =
              [suffix = stated.string()](std::vector<std::string>& tokens) {
                for (size_t i = 0; i < tokens.size(); ++i)
                  replace_all(tokens[i], suffix, i + 1 == tokens.size() ? "" : " ");
              },
          .stream = [suffix = stated.string()](
                        bool whole) { return std::make_unique<SuffixStream>(suffix, whole); },
          .stream_of_one = [suffix = stated.string()] { return replacing_stream(suffix, ""); }};
}

}  // namespace attentive::tokenizers
