#include "tokenizers/pipeline.h"

#include <algorithm>

#include "base/refusal.h"
#include "base/strings.h"
#include "tokenizers/byte_level.h"

namespace attentive::tokenizers {
namespace {

const nlohmann::json kNull;

// A part that may be absent, which is as null.
JsonView part(const JsonView& document, const char* key) {
  return document.has(key) ? document.at(key) : JsonView(kNull, key);
}

std::unique_ptr<const Model> checked_model(const JsonView& document) {
  document.only({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
                 "post_processor", "decoder", "model"});
  if (document.has("version") && document.at("version").raw() != "1.0")
    document.at("version").expected("\"1.0\"");
  refuse_sentence_piece(document);
  return parse_model(document.at("model"));
}

// Spells pieces one after the other; a text repeats its words.
class Speller {
 public:
  explicit Speller(const Model& model) : model_(model) {}

  void spell(const Piece& piece, std::vector<int64_t>& ids) {
    if (piece.added_id >= 0) return ids.push_back(piece.added_id);
    const auto [entry, fresh] = known_.try_emplace(piece.text);
    if (fresh) model_.encode(piece.text, entry->second);
    ids.insert(ids.end(), entry->second.begin(), entry->second.end());
  }

 private:
  const Model& model_;
  std::unordered_map<std::string_view, std::vector<int64_t>> known_;
};

// The ids of all pieces, or of so many from the start that they are `enough`.
std::vector<int64_t> spell_from_start(const Model& model, const Pieces& pieces,
                                      std::optional<size_t> enough) {
  Speller speller(model);
  std::vector<int64_t> ids;
  for (const auto& piece : pieces.list) {
    speller.spell(piece, ids);
    if (enough && piece.added_id < 0 && ids.size() >= *enough) break;
  }
  return ids;
}

std::vector<int64_t> spell_from_end(const Model& model, const Pieces& pieces, std::optional<size_t> enough) {
  Speller speller(model);
  std::vector<int64_t> reversed;
  for (auto piece = pieces.list.rbegin(); piece != pieces.list.rend(); ++piece) {
    const auto before = static_cast<std::ptrdiff_t>(reversed.size());
    speller.spell(*piece, reversed);
    std::reverse(reversed.begin() + before, reversed.end());
    if (enough && piece->added_id < 0 && reversed.size() >= *enough) break;
  }
  std::reverse(reversed.begin(), reversed.end());
  return reversed;
}

}  // namespace

Pipeline::Pipeline(const JsonView& document)
    : model_(checked_model(document)),
      normalizer_(parse_normalizer(part(document, "normalizer"))),
      pre_tokenizer_(parse_pre_tokenizer(part(document, "pre_tokenizer"))),
      added_(part(document, "added_tokens"), model_->vocabulary(), normalizer_),
      post_processor_(part(document, "post_processor")),
      decoder_(parse_decoder(part(document, "decoder"))) {
  if (const auto json = document.find("truncation")) truncation_.emplace(*json, post_processor_);
  if (const auto json = document.find("padding")) padding_.emplace(*json);
  if (!decoder_.byte_level) return;
  model_->vocabulary().for_each([&](const std::string& token, int64_t id) {
    if (auto bytes = from_visible(token)) bytes_.emplace(id, std::move(*bytes));
  });
}

Pieces Pipeline::pieces_of(std::string_view text) const {
  const auto good = utf8_prefix(text);
  if (good != text.size()) refuse("expected text in UTF-8, got a bad byte at offset {}", good);
  Pieces pieces;
  if (!text.empty()) pieces.list.push_back({text});
  added_.extract(pieces, normalizer_);
  if (pre_tokenizer_) pre_tokenizer_(pieces);
  return pieces;
}

std::vector<int64_t> Pipeline::encode_whole(std::string_view text) const {
  return spell_from_start(*model_, pieces_of(text), std::nullopt);
}

std::vector<int64_t> Pipeline::spell(std::string_view text, size_t sequence) const {
  const auto pieces = pieces_of(text);
  // Python stops when it has enough, which decides which of two texts is the longer one.
  const auto enough = truncation_ ? truncation_->enough(sequence) : std::nullopt;
  return truncation_ && truncation_->keeps_end() ? spell_from_end(*model_, pieces, enough)
                                                 : spell_from_start(*model_, pieces, enough);
}

Encoding Pipeline::encode(const std::vector<std::string_view>& texts, bool add_special_tokens) const {
  std::vector<std::vector<int64_t>> sequences;
  for (const auto text : texts) sequences.push_back(spell(text, sequences.size()));
  if (truncation_)
    truncation_->apply(sequences, add_special_tokens ? post_processor_.added(texts.size()) : 0);
  auto encoding = post_processor_.apply(sequences, add_special_tokens);
  if (padding_) padding_->apply(encoding);
  return encoding;
}

// What the decoder gets for an id.
const std::string& Pipeline::token_of(int64_t id) const {
  if (const auto* added = added_.find(id)) return added->decoded;
  const auto* token = model_->vocabulary().token_of(id);
  if (!token) refuse("expected ids of its vocabulary of {}, got {}", vocab_size(), id);
  return *token;
}

const std::string* Pipeline::token_to_decode(int64_t id, bool skip_special_tokens) const {
  const auto& token = token_of(id);
  return skip_special_tokens && added_.is_special(token) ? nullptr : &token;
}

std::string Pipeline::decode(std::span<const int64_t> ids, bool skip_special_tokens) const {
  std::vector<std::string> tokens;
  for (const auto id : ids) {
    if (const auto* token = token_to_decode(id, skip_special_tokens)) tokens.push_back(*token);
  }
  decoder_.apply(tokens);
  std::string text;
  for (const auto& token : tokens) text += token;
  return text;
}

int64_t Pipeline::vocab_size() const {
  return std::max(model_->vocabulary().largest_id(), added_.largest_id()) + 1;
}

std::string_view Pipeline::bytes(int64_t id) const {
  if (const auto* added = added_.find(id)) return added->content;
  const auto found = bytes_.find(id);
  return found == bytes_.end() ? token_of(id) : found->second;
}

std::optional<int64_t> Pipeline::token_to_id(std::string_view token) const {
  const auto added = added_.id_of(token);
  return added ? added : model_->vocabulary().id_of(token);
}

bool Pipeline::is_special(int64_t id) const {
  const auto* added = added_.find(id);
  return added && added->special;
}

}  // namespace attentive::tokenizers
