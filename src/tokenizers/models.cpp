#include "tokenizers/models.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/refusal.h"
#include "tokenizers/bpe_model.h"
#include "tokenizers/unicode.h"
#include "tokenizers/unigram_model.h"

namespace attentive::tokenizers {
namespace {

Token whole_piece(int64_t id, std::string_view piece) {
  return {id, 0, static_cast<uint32_t>(piece.size())};
}

}  // namespace

int64_t Model::unknown_id(std::string_view token) const {
  const auto id = vocabulary().id_of(token);
  if (!id) refuse("the text needs the unknown token \"{}\", which the vocabulary lacks", token);
  return *id;
}

std::vector<int32_t> Model::byte_ids() const {
  std::vector<int32_t> ids;
  for (int byte = 0; byte < 256; ++byte) {
    ids.push_back(static_cast<int32_t>(vocabulary().id_of(fmt::format("<0x{:02X}>", byte)).value_or(-1)));
  }
  return ids;
}

WordLevelModel::WordLevelModel(const JsonView& json) : Model(Vocabulary(json.at("vocab"))) {
  json.only({"type", "unk_token", "vocab"});
  unknown_ = json.at("unk_token").string();
}

void WordLevelModel::encode(std::string_view piece, std::vector<Token>& tokens) const {
  const auto id = vocabulary().id_of(piece);
  tokens.push_back(whole_piece(id ? *id : unknown_id(unknown_), piece));
}

WordPieceModel::WordPieceModel(const JsonView& json) : Model(Vocabulary(json.at("vocab"))) {
  json.only({"type", "unk_token", "continuing_subword_prefix", "max_input_chars_per_word", "vocab"});
  unknown_ = json.at("unk_token").string();
  prefix_ = json.at("continuing_subword_prefix").string();
  most_characters_ = json.at("max_input_chars_per_word").integer();
}

bool WordPieceModel::spell(std::string_view word, std::vector<Token>& tokens) const {
  std::string token;
  for (size_t begin = 0; begin < word.size();) {
    token = begin > 0 ? prefix_ : "";
    const size_t affix = token.size();
    token += word.substr(begin, vocabulary().longest());
    std::optional<int64_t> id;
    while (token.size() > affix) {
      const size_t end = begin + token.size() - affix;
      const bool whole = end == word.size() || begins_character(word[end]);
      if (whole && (id = vocabulary().id_of(token))) break;
      token.pop_back();
    }
    if (!id) return false;
    const size_t end = begin + token.size() - affix;
    tokens.push_back({*id, static_cast<uint32_t>(begin), static_cast<uint32_t>(end)});
    begin = end;
  }
  return true;
}

void WordPieceModel::encode(std::string_view word, std::vector<Token>& tokens) const {
  const size_t before = tokens.size();
  const auto characters = std::count_if(word.begin(), word.end(), begins_character);
  if (characters <= most_characters_ && spell(word, tokens)) return;
  tokens.resize(before);
  tokens.push_back(whole_piece(unknown_id(unknown_), word));
}

namespace {

std::string type_of(const JsonView& json) {
  if (json.has("type")) return json.type();
  if (json.has("merges")) return "BPE";
  if (json.has("max_input_chars_per_word")) return "WordPiece";
  if (json.has("vocab") && json.at("vocab").raw().is_array()) return "Unigram";
  json.expected("a field \"type\"");
}

}  // namespace

std::unique_ptr<const Model> parse_model(const JsonView& json) {
  const auto type = type_of(json);
  if (type == "BPE") return std::make_unique<BpeModel>(json);
  if (type == "Unigram") return std::make_unique<UnigramModel>(json);
  if (type == "WordPiece") return std::make_unique<WordPieceModel>(json);
  if (type == "WordLevel") return std::make_unique<WordLevelModel>(json);
  json.unsupported("the model " + type);
}

}  // namespace attentive::tokenizers
