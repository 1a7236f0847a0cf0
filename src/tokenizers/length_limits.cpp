#include "tokenizers/length_limits.h"

#include <algorithm>

#include "base/refusal.h"

namespace attentive::tokenizers {
namespace {

// A text is not padded to more than this: a file cannot ask for all memory.
constexpr int64_t kMostPadding = int64_t{1} << 24;

bool parse_direction(const JsonView& json) {
  if (json.string() == "Left") return true;
  if (json.string() == "Right") return false;
  json.expected("Left or Right");
}

}  // namespace

Truncation::Truncation(const JsonView& json, const PostProcessor& post_processor) {
  json.only({"direction", "max_length", "strategy", "stride"});
  keeps_end_ = json.has("direction") && parse_direction(json.at("direction"));
  const auto added = std::max(post_processor.added(1), post_processor.added(2));
  const auto most = json.at("max_length").integer();
  if (most < added) json.at("max_length").expected(fmt::format("room for the {} special tokens", added));
  most_ = static_cast<size_t>(most);
  (void)json.at("stride").integer();  // of what is cut off, which nobody asks for
  const auto strategy = json.at("strategy");
  if (strategy.string() == "OnlyFirst") {
    from_ = From::OnlyFirst;
  } else if (strategy.string() == "OnlySecond") {
    from_ = From::OnlySecond;
  } else if (strategy.string() != "LongestFirst") {
    strategy.unsupported("the strategy " + strategy.string());
  }
}

std::optional<size_t> Truncation::enough(size_t sequence) const {
  return from_ == From::OnlySecond && sequence == 0 ? std::nullopt : std::optional(most_);
}

void Truncation::shorten(std::vector<int64_t>& ids, size_t size) const {
  if (ids.size() <= size) return;
  if (keeps_end_) {
    ids.erase(ids.begin(), ids.end() - static_cast<std::ptrdiff_t>(size));
  } else {
    ids.resize(size);
  }
}

// The longer one first; if both are longer than half, to halves, of which the longer one gets the odd token.
void Truncation::shorten_both(std::vector<int64_t>& first, std::vector<int64_t>& second, size_t most) const {
  const bool swapped = first.size() > second.size();
  size_t less = std::min(first.size(), second.size());
  size_t more = less > most ? less : std::max(less, most - less);
  if (less + more > most) {
    less = most / 2;
    more = less + most % 2;
  }
  shorten(first, swapped ? more : less);
  shorten(second, swapped ? less : more);
}

void Truncation::apply(std::vector<std::vector<int64_t>>& sequences, int64_t added) const {
  const auto most = most_ - static_cast<size_t>(added);
  size_t total = 0;
  for (const auto& ids : sequences) total += ids.size();
  if (total <= most) return;
  if (most == 0) {
    for (auto& ids : sequences) ids.clear();
  } else if (from_ == From::LongestFirst) {
    if (sequences.size() == 2) return shorten_both(sequences[0], sequences[1], most);
    shorten(sequences[0], most);
  } else {
    const size_t which = from_ == From::OnlyFirst ? 0 : 1;
    if (which >= sequences.size()) refuse("the file truncates the second text only, and there is one");
    const size_t surplus = total - most;
    if (sequences[which].size() <= surplus) {
      refuse("the text that the file truncates has {} tokens, of which {} are to go", sequences[which].size(),
             surplus);
    }
    shorten(sequences[which], sequences[which].size() - surplus);
  }
}

Padding::Padding(const JsonView& json) {
  json.only({"strategy", "direction", "pad_to_multiple_of", "pad_id", "pad_type_id", "pad_token"});
  const auto strategy = json.at("strategy");
  if (strategy.raw().is_object()) {
    strategy.only({"Fixed"});
    length_ = static_cast<size_t>(strategy.at("Fixed").integer(0, kMostPadding));
  } else if (strategy.string() != "BatchLongest") {
    strategy.unsupported("the strategy " + strategy.string());
  }
  if (const auto multiple = json.find("pad_to_multiple_of")) {
    multiple_ = std::max<size_t>(1, static_cast<size_t>(multiple->integer(0, kMostPadding)));
  }
  before_ = parse_direction(json.at("direction"));
  id_ = json.at("pad_id").integer();
  type_id_ = json.at("pad_type_id").integer();
  (void)json.at("pad_token").string();
}

void Padding::apply(Encoding& encoding) const {
  const auto fill = [&](std::vector<int64_t>& values, int64_t value) {
    auto length = length_ > 0 ? length_ : values.size();
    length = (length + multiple_ - 1) / multiple_ * multiple_;
    if (values.size() >= length) return;
    values.insert(before_ ? values.begin() : values.end(), length - values.size(), value);
  };
  fill(encoding.ids, id_);
  fill(encoding.type_ids, type_id_);
}

}  // namespace attentive::tokenizers
