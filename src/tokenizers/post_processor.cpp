#include "tokenizers/post_processor.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "base/refusal.h"
#include "base/strings.h"
#include "tokenizers/unicode.h"

namespace attentive::tokenizers {
namespace {

// So that a small file cannot ask for all memory: each piece holds the ids of its token.
constexpr size_t kMostParts = 1024, kMostAdded = size_t{1} << 16;

// Reads a token and its id, such as ["[SEP]", 102].
int64_t parse_token(const JsonView& json) {
  if (json.items().size() != 2) json.expected("a token and its id");
  (void)json.item(0).string();
  return json.item(1).integer();
}

std::vector<int64_t> parse_ids(const JsonView& json) {
  std::vector<int64_t> ids;
  for (const auto& item : json.items()) ids.push_back(item.integer());
  return ids;
}

// Reads {"Sequence": {"id": "A", "type_id": 0}} or {"SpecialToken": {"id": "[CLS]", "type_id": 0}}.
TemplatePiece parse_piece(const JsonView& json, const JsonView& special_tokens) {
  json.only({"Sequence", "SpecialToken"});
  if (json.has("Sequence") == json.has("SpecialToken")) json.expected("one of Sequence and SpecialToken");
  const bool is_sequence = json.has("Sequence");
  const auto inner = json.at(is_sequence ? "Sequence" : "SpecialToken");
  inner.only({"id", "type_id"});
  const auto name = inner.at("id");
  TemplatePiece piece;
  piece.type_id = inner.at("type_id").integer();
  if (is_sequence) {
    if (name.string() != "A" && name.string() != "B") name.expected("A or B");
    piece.sequence = name.string() == "A" ? 0 : 1;
    return piece;
  }
  if (!special_tokens.has(name.string())) name.expected("one of the special_tokens");
  const auto token = special_tokens.at(name.string());
  token.only({"id", "ids", "tokens"});
  piece.ids = parse_ids(token.at("ids"));
  return piece;
}

TemplatePiece sequence(int index, int64_t type_id) {
  return {.sequence = index, .ids = {}, .type_id = type_id};
}
TemplatePiece token(int64_t id, int64_t type_id) {
  return {.sequence = -1, .ids = {id}, .type_id = type_id};
}

}  // namespace

PostProcessor::PostProcessor() : single_{sequence(0, 0)}, pair_{sequence(0, 0), sequence(1, 1)} {}

PostProcessor::PostProcessor(const JsonView& json) : PostProcessor() {
  if (!json.is_null()) parse(json);
}

void PostProcessor::parse(const JsonView& json) {
  const auto& type = json.type();
  if (type == "ByteLevel") {
    json.only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
    return parse_trim(json);
  }
  if (type == "BertProcessing") return parse_bert(json, /*roberta=*/false);
  if (type == "RobertaProcessing") return parse_bert(json, /*roberta=*/true);
  if (type == "TemplateProcessing") return parse_templates(json);
  if (type == "Sequence") return parse_sequence(json);
  json.unsupported("the post-processor " + type);
}

void PostProcessor::parse_trim(const JsonView& json) {
  const bool prefix_space = json.at("add_prefix_space").boolean();
  if (json.at("trim_offsets").boolean()) trims_.push_back({prefix_space, behind_a_special_});
}

// BERT's template is [CLS] A [SEP] B [SEP]; RoBERTa puts another separator before B and has one type only.
void PostProcessor::parse_bert(const JsonView& json, bool roberta) {
  if (roberta) {
    json.only({"type", "sep", "cls", "trim_offsets", "add_prefix_space"});
    parse_trim(json);
  } else {
    json.only({"type", "sep", "cls"});
  }
  const auto sep = parse_token(json.at("sep")), cls = parse_token(json.at("cls"));
  const int64_t second = roberta ? 0 : 1;
  single_ = {token(cls, 0), sequence(0, 0), token(sep, 0)};
  pair_ = single_;
  if (roberta) pair_.push_back(token(sep, 0));
  pair_.push_back(sequence(1, second));
  pair_.push_back(token(sep, second));
  behind_a_special_ = {true, roberta};
}

void PostProcessor::parse_templates(const JsonView& json) {
  json.only({"type", "single", "pair", "special_tokens"});
  const auto special_tokens = json.at("special_tokens");
  const auto parse_template = [&](const JsonView& items, int sequences) {
    Template pieces;
    size_t added = 0;
    if (items.items().size() > kMostParts) items.expected(fmt::format("at most {} pieces", kMostParts));
    for (const auto& item : items.items()) {
      pieces.push_back(parse_piece(item, special_tokens));
      added += pieces.back().ids.size();
      if (added > kMostAdded) items.expected(fmt::format("at most {} added tokens", kMostAdded));
      if (pieces.back().sequence >= sequences) item.expected("sequence A");
    }
    return pieces;
  };
  single_ = parse_template(json.at("single"), 1);
  pair_ = parse_template(json.at("pair"), 2);
}

// Only one processor of a sequence may add tokens: a second one has no useful meaning in Python either.
void PostProcessor::parse_sequence(const JsonView& json) {
  json.only({"type", "processors"});
  bool adds = false;
  for (const auto& item : json.at("processors").items()) {
    const bool silent = item.type() == "ByteLevel";
    if (adds && !silent) item.unsupported("a second processor that adds tokens");
    adds = adds || !silent;
    parse(item);
  }
}

int64_t PostProcessor::added(size_t sequences) const {
  size_t count = 0;
  for (const auto& piece : sequences == 1 ? single_ : pair_) count += piece.ids.size();
  return static_cast<int64_t>(count);
}

Blanks blanks_of(std::string_view token) {
  const auto is_blank = [](char32_t c) { return c == 0x120 || is_space(c); };  // Ġ
  Blanks blanks;
  for (size_t offset = 0; offset < token.size() && is_blank(next_char(token, offset));) ++blanks.leading;
  for (size_t end = token.size(); end > 0 && is_blank(previous_char(token, end)); ++blanks.trailing)
    end = previous_start(token, end);
  return blanks;
}

namespace {

void trim(SpelledText& text, bool prefix_space, bool behind_a_special) {
  for (size_t i = 0; i < text.offsets.size(); ++i) {
    auto& [begin, end] = text.offsets[i];
    int64_t leading = text.blanks[i].leading;
    const int64_t trailing = text.blanks[i].trailing;
    const bool first = (i == 0 && !behind_a_special) || begin == 0;
    if (first && prefix_space && leading == 1) leading = 0;
    if (leading > 0) begin = std::min(begin + leading, end);
    if (trailing > 0 && end >= trailing) end = std::max(end - trailing, begin);
  }
}

template <class Value>
void append(std::vector<Value>& all, const std::vector<Value>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

}  // namespace

Encoding PostProcessor::apply(std::vector<SpelledText> sequences, bool add_special_tokens,
                              Detail detail) const {
  for (const auto& [prefix_space, behind] : trims_) {
    for (size_t i = 0; i < sequences.size() && detail == Detail::Offsets; ++i)
      trim(sequences[i], prefix_space, behind[i] && add_special_tokens);
  }
  Encoding whole;
  for (const auto& piece : sequences.size() == 1 ? single_ : pair_) {
    const bool special = piece.sequence < 0;
    if (special && !add_special_tokens) continue;
    auto* const text = special ? nullptr : &sequences[static_cast<size_t>(piece.sequence)];
    append(whole.ids, text ? text->ids : piece.ids);
    if (detail == Detail::Ids) continue;
    const auto size = whole.ids.size();
    whole.type_ids.resize(size, piece.type_id);
    whole.special_tokens_mask.resize(size, special ? 1 : 0);
    if (detail != Detail::Offsets) continue;
    if (text) append(whole.offsets, text->offsets);
    whole.offsets.resize(size);
  }
  if (detail != Detail::Ids) whole.attention_mask.assign(whole.ids.size(), 1);
  return whole;
}

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
