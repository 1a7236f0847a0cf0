#include <algorithm>
#include <string_view>
#include <utility>

#include "tokenizers/decoders.h"
#include "tokenizers/pattern.h"
#include "tokenizers/token_decoder.h"

namespace attentive::tokenizers {
namespace {

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

  void push(std::string part, std::vector<std::string>& out) override {
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

}  // namespace

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
      return replacing_stream(from, content);
    };
    decoder.growth = std::max(1.0, size_of(content) / size_of(pattern.at("String").string()));
  } else {
    decoder.growth = 1 + size_of(content);  // the pattern may match before each character
  }
  return decoder;
}

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

}  // namespace attentive::tokenizers
