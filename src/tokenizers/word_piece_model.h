#pragma once

#include <string>

#include "tokenizers/model.h"

namespace attentive::tokenizers {

/// WordPiece: takes the longest token that the rest of a word begins with, again and again; behind the first
/// one, tokens carry a prefix such as "##". A word that cannot be spelled, or is too long, is the unknown
/// token. A word of n bytes costs O(n L²), where L are the bytes of the longest token.
class WordPieceModel final : public Model {
 public:
  explicit WordPieceModel(const JsonView& json);

  void encode(std::string_view piece, std::vector<int64_t>& ids) const override;

 private:
  bool spell(std::string_view word, std::vector<int64_t>& ids) const;

  std::string unknown_, prefix_;
  int64_t most_characters_;
};

}  // namespace attentive::tokenizers
