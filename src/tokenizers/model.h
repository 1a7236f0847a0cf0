#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "tokenizers/json_view.h"
#include "tokenizers/vocabulary.h"

namespace attentive::tokenizers {

/// Spells a piece of text with the tokens of a vocabulary.
class Model {
 public:
  explicit Model(const JsonView& vocabulary) : vocabulary_(vocabulary) {}
  virtual ~Model() = default;

  const Vocabulary& vocabulary() const { return vocabulary_; }
  /// Appends the ids of a piece that is not empty. Throws Refusal if it needs an unknown token that the
  /// vocabulary lacks.
  virtual void encode(std::string_view piece, std::vector<int64_t>& ids) const = 0;

 protected:
  /// Throws Refusal if the vocabulary lacks the token.
  int64_t unknown_id(std::string_view token) const;

 private:
  Vocabulary vocabulary_;
};

/// Reads the file's "model". Old files do not state its type, which its members then tell.
std::unique_ptr<const Model> parse_model(const JsonView& json);

}  // namespace attentive::tokenizers
