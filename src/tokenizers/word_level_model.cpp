#include "tokenizers/word_level_model.h"

namespace attentive::tokenizers {

WordLevelModel::WordLevelModel(const JsonView& json) : Model(json.at("vocab")) {
  json.only({"type", "unk_token", "vocab"});
  unknown_ = json.at("unk_token").string();
}

void WordLevelModel::encode(std::string_view piece, std::vector<int64_t>& ids) const {
  const auto id = vocabulary().id_of(piece);
  ids.push_back(id ? *id : unknown_id(unknown_));
}

}  // namespace attentive::tokenizers
