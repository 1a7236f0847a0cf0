#include "tokenizers/model.h"

#include "io/refusal.h"
#include "tokenizers/bpe_model.h"
#include "tokenizers/word_level_model.h"
#include "tokenizers/word_piece_model.h"

namespace attentive::tokenizers {
namespace {

std::string type_of(const JsonView& json) {
  if (json.has("type")) return json.type();
  if (json.has("merges")) return "BPE";
  if (json.has("max_input_chars_per_word")) return "WordPiece";
  if (json.has("vocab") && json.at("vocab").raw().is_array()) return "Unigram";
  json.expected("a field \"type\"");
}

}  // namespace

int64_t Model::unknown_id(std::string_view token) const {
  const auto id = vocabulary().id_of(token);
  if (!id) refuse("the text needs the unknown token \"{}\", which the vocabulary lacks", token);
  return *id;
}

std::unique_ptr<const Model> parse_model(const JsonView& json) {
  const auto type = type_of(json);
  if (type == "BPE") return std::make_unique<BpeModel>(json);
  if (type == "WordPiece") return std::make_unique<WordPieceModel>(json);
  if (type == "WordLevel") return std::make_unique<WordLevelModel>(json);
  json.unsupported("the model " + type);
}

}  // namespace attentive::tokenizers
