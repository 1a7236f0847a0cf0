#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizers/json_view.h"
#include "tokenizers/vocabulary.h"

namespace attentive::tokenizers {

/// A token, and the bytes [begin, end) of the piece that it spells.
struct Token {
  int64_t id;
  uint32_t begin, end;

  bool operator==(const Token&) const = default;
};

/// Spells a piece of text with the tokens of a vocabulary.
class Model {
 public:
  explicit Model(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}
  virtual ~Model() = default;

  const Vocabulary& vocabulary() const { return vocabulary_; }
  /// Appends the tokens of `piece`, which must not be empty. Throws Refusal if it needs an unknown token that
  /// the vocabulary lacks.
  virtual void encode(std::string_view piece, std::vector<Token>& tokens) const = 0;

 protected:
  /// Throws Refusal if the vocabulary lacks the token.
  int64_t unknown_id(std::string_view token) const;
  /// The ids of "<0x00>" to "<0xFF>", the tokens that spell single bytes; -1 for those that the vocabulary
  /// lacks.
  std::vector<int32_t> byte_ids() const;

 private:
  Vocabulary vocabulary_;
};

/// The WordLevel model makes every piece one token; a piece that the vocabulary lacks becomes the unknown
/// token.
class WordLevelModel final : public Model {
 public:
  explicit WordLevelModel(const JsonView& json);

  void encode(std::string_view piece, std::vector<Token>& tokens) const override;

 private:
  std::string unknown_;
};

/// The WordPiece model repeatedly takes the longest token with which the rest of a word begins; after the
/// first one, tokens carry a prefix such as "##". A word that cannot be spelled, or is too long, becomes the
/// unknown token. A word of n bytes costs O(n L²), where L is the number of bytes of the longest token.
class WordPieceModel final : public Model {
 public:
  explicit WordPieceModel(const JsonView& json);

  void encode(std::string_view piece, std::vector<Token>& tokens) const override;

 private:
  bool spell(std::string_view word, std::vector<Token>& tokens) const;

  std::string unknown_, prefix_;
  int64_t most_characters_;
};

/// Reads the file's "model". In old files, which do not state its type, its members identify it.
std::unique_ptr<const Model> parse_model(const JsonView& json);

}  // namespace attentive::tokenizers
