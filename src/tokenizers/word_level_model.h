#pragma once

#include <string>

#include "tokenizers/model.h"

namespace attentive::tokenizers {

/// WordLevel: every piece is one token. A piece that the vocabulary lacks is the unknown token.
class WordLevelModel final : public Model {
 public:
  explicit WordLevelModel(const JsonView& json);

  void encode(std::string_view piece, std::vector<int64_t>& ids) const override;

 private:
  std::string unknown_;
};

}  // namespace attentive::tokenizers
