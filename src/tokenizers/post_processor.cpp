#include "tokenizers/post_processor.h"

#include <algorithm>

#include <fmt/format.h>

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
  for (size_t at = 0; at < token.size() && is_blank(next_char(token, at));) ++blanks.leading;
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

}  // namespace attentive::tokenizers
