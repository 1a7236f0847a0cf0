#include "tokenizers/length_limits.h"

#include <algorithm>
#include <limits>

#include "base/refusal.h"
#include "base/strings.h"

namespace attentive::tokenizers {
namespace {

// The largest length of padding, so that a file cannot ask for all memory.
constexpr int64_t kMostPadding = int64_t{1} << 24;

TextSide parse_direction(const JsonView& json) {
  if (json.string() == "Left") return TextSide::Left;
  if (json.string() == "Right") return TextSide::Right;
  json.expected("Left or Right");
}

const char* name_of(TextSide side) {
  return side == TextSide::Left ? "Left" : "Right";
}

const char* name_of(TruncationStrategy strategy) {
  switch (strategy) {
    case TruncationStrategy::LongestFirst:
      return "LongestFirst";
    case TruncationStrategy::OnlyFirst:
      return "OnlyFirst";
    case TruncationStrategy::OnlySecond:
      return "OnlySecond";
  }
  refuse("truncation.strategy: expected a strategy, got {}", static_cast<int>(strategy));
}

int64_t special_tokens(const PostProcessor& post_processor) {
  return std::max(post_processor.added(1), post_processor.added(2));
}

// Checks an option that the caller set; the error names it as it stands in the struct.
void check_option(const char* name, int64_t value, int64_t least, int64_t most) {
  if (value < least || value > most)
    refuse("{}: expected an integer from {} to {}, got {}", name, least, most, value);
}

void check_side(const char* name, TextSide side) {
  if (side != TextSide::Left && side != TextSide::Right)
    refuse("{}: expected a side, got {}", name, static_cast<int>(side));
}

}  // namespace

Truncation::Truncation(const JsonView& json, const PostProcessor& post_processor) {
  json.only({"direction", "max_length", "strategy", "stride"});
  if (const auto direction = json.find("direction")) options_.side = parse_direction(*direction);
  const auto added = special_tokens(post_processor);
  options_.max_length = json.at("max_length").integer();
  if (options_.max_length < added)
    json.at("max_length").expected(fmt::format("room for the {} special tokens", added));
  (void)json.at("stride").integer();  // checked only: the overflow that it is for is dropped
  const auto strategy = json.at("strategy");
  if (strategy.string() == "OnlyFirst") {
    options_.strategy = TruncationStrategy::OnlyFirst;
  } else if (strategy.string() == "OnlySecond") {
    options_.strategy = TruncationStrategy::OnlySecond;
  } else if (strategy.string() != "LongestFirst") {
    strategy.unsupported("the strategy " + strategy.string());
  }
}

Truncation::Truncation(const TruncationOptions& options, const PostProcessor& post_processor)
    : options_(options) {
  check_option("truncation.max_length", options.max_length, 0, std::numeric_limits<int32_t>::max());
  const auto added = special_tokens(post_processor);
  if (options.max_length < added) {
    refuse("truncation.max_length: expected room for the {} special tokens, got {}", added,
           options.max_length);
  }
  check_side("truncation.side", options.side);
  (void)name_of(options.strategy);
}

nlohmann::json Truncation::to_json() const {
  return {{"direction", name_of(options_.side)},
          {"max_length", options_.max_length},
          {"strategy", name_of(options_.strategy)},
          {"stride", 0}};
}

std::optional<size_t> Truncation::enough() const {
  // OnlySecond throws for a lone text that is too long, so all its tokens must be counted.
  if (options_.strategy == TruncationStrategy::OnlySecond) return std::nullopt;
  return static_cast<size_t>(options_.max_length);
}

void Truncation::shorten(SpelledText& text, size_t size) const {
  const size_t all = text.ids.size();
  if (all <= size) return;
  if (keeps_end()) {
    text.keep(all - size, all);
  } else {
    text.keep(0, size);
  }
}

// Shortens the longer text first. If both are longer than half of `most`, both are shortened to half, and the
// longer one gets the odd token.
void Truncation::shorten_both(SpelledText& first, SpelledText& second, size_t most) const {
  const bool swapped = first.ids.size() > second.ids.size();
  size_t less = std::min(first.ids.size(), second.ids.size());
  size_t more = less > most ? less : std::max(less, most - less);
  if (less + more > most) {
    less = most / 2;
    more = less + most % 2;
  }
  shorten(first, swapped ? more : less);
  shorten(second, swapped ? less : more);
}

void Truncation::apply(std::vector<SpelledText>& sequences, int64_t added) const {
  const auto most = static_cast<size_t>(options_.max_length - added);
  size_t total = 0;
  for (const auto& text : sequences) total += text.ids.size();
  if (total <= most) return;
  if (most == 0) {
    for (auto& text : sequences) text.keep(0, 0);
  } else if (options_.strategy == TruncationStrategy::LongestFirst) {
    if (sequences.size() == 2) return shorten_both(sequences[0], sequences[1], most);
    shorten(sequences[0], most);
  } else {
    const size_t which = options_.strategy == TruncationStrategy::OnlyFirst ? 0 : 1;
    if (which >= sequences.size()) refuse("the truncation is of the second text only, and there is one");
    const size_t surplus = total - most, size = sequences[which].ids.size();
    if (size <= surplus)
      refuse("the text that is to be truncated has {} tokens, of which {} are to go", size, surplus);
    shorten(sequences[which], size - surplus);
  }
}

Padding::Padding(const JsonView& json) {
  json.only({"strategy", "direction", "pad_to_multiple_of", "pad_id", "pad_type_id", "pad_token"});
  const auto strategy = json.at("strategy");
  if (strategy.raw().is_object()) {
    strategy.only({"Fixed"});
    options_.length = strategy.at("Fixed").integer(0, kMostPadding);
  } else if (strategy.string() != "BatchLongest") {
    strategy.unsupported("the strategy " + strategy.string());
  }
  if (const auto multiple = json.find("pad_to_multiple_of")) {
    options_.multiple_of = std::max<int64_t>(1, multiple->integer(0, kMostPadding));
  }
  options_.side = parse_direction(json.at("direction"));
  options_.id = json.at("pad_id").integer();
  options_.type_id = json.at("pad_type_id").integer();
  options_.token = json.at("pad_token").string();
}

Padding::Padding(const PaddingOptions& options) : options_(options) {
  constexpr int64_t kMostId = std::numeric_limits<int32_t>::max();
  if (options.length) check_option("padding.length", *options.length, 0, kMostPadding);
  check_option("padding.multiple_of", options.multiple_of, 1, kMostPadding);
  check_option("padding.id", options.id, 0, kMostId);
  check_option("padding.type_id", options.type_id, 0, kMostId);
  check_side("padding.side", options.side);
  if (!is_utf8(options.token)) refuse("padding.token: expected text in UTF-8");
}

nlohmann::json Padding::to_json() const {
  nlohmann::json strategy = "BatchLongest", multiple;
  if (options_.length) strategy = {{"Fixed", *options_.length}};
  if (options_.multiple_of > 1) multiple = options_.multiple_of;
  return {{"strategy", strategy},  {"direction", name_of(options_.side)}, {"pad_to_multiple_of", multiple},
          {"pad_id", options_.id}, {"pad_type_id", options_.type_id},     {"pad_token", options_.token}};
}

void Padding::apply(Encoding& encoding, size_t longest, Detail detail) const {
  const auto multiple = static_cast<size_t>(options_.multiple_of);
  auto length = options_.length ? static_cast<size_t>(*options_.length) : longest;
  length = (length + multiple - 1) / multiple * multiple;
  if (encoding.ids.size() >= length) return;
  const size_t missing = length - encoding.ids.size();
  const auto fill = [&]<class Value>(std::vector<Value>& values, const Value& value) {
    values.insert(options_.side == TextSide::Left ? values.begin() : values.end(), missing, value);
  };
  fill(encoding.ids, options_.id);
  if (detail == Detail::Ids) return;
  fill(encoding.type_ids, options_.type_id);
  fill(encoding.attention_mask, int64_t{0});
  fill(encoding.special_tokens_mask, int64_t{1});
  if (detail == Detail::Offsets) fill(encoding.offsets, TextSpan{});
}

}  // namespace attentive::tokenizers
