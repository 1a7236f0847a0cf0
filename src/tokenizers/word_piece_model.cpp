#include "tokenizers/word_piece_model.h"

#include <algorithm>

#include "tokenizers/unicode.h"

namespace attentive::tokenizers {

WordPieceModel::WordPieceModel(const JsonView& json) : Model(json.at("vocab")) {
  json.only({"type", "unk_token", "continuing_subword_prefix", "max_input_chars_per_word", "vocab"});
  unknown_ = json.at("unk_token").string();
  prefix_ = json.at("continuing_subword_prefix").string();
  most_characters_ = json.at("max_input_chars_per_word").integer();
}

bool WordPieceModel::spell(std::string_view word, std::vector<int64_t>& ids) const {
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
    ids.push_back(*id);
    begin += token.size() - affix;
  }
  return true;
}

void WordPieceModel::encode(std::string_view word, std::vector<int64_t>& ids) const {
  const size_t before = ids.size();
  const auto characters = std::count_if(word.begin(), word.end(), begins_character);
  if (characters <= most_characters_ && spell(word, ids)) return;
  ids.resize(before);
  ids.push_back(unknown_id(unknown_));
}

}  // namespace attentive::tokenizers
