#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/merge_neighbours.h"
#include "tokenizers/json_view.h"

namespace attentive::tokenizers {

struct HashText {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};

/// The tokens of a model: each has one id, and each id at most one token.
class Vocabulary {
 public:
  /// From an object of tokens and ids.
  explicit Vocabulary(const JsonView& json);
  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;

  size_t size() const { return ids_.size(); }
  int64_t largest_id() const { return largest_id_; }  // -1 if there is none
  size_t longest() const { return longest_; }         // bytes of the longest token
  std::optional<int64_t> id_of(std::string_view token) const;
  /// Null if no token has this id.
  const std::string* token_of(int64_t id) const;

  /// Visits every token and its id, in no order.
  template <class Visit>
  void for_each(Visit visit) const {
    for (const auto& [token, id] : ids_) visit(token, id);
  }

 private:
  std::unordered_map<std::string, int64_t, HashText, std::equal_to<>> ids_;
  std::unordered_map<int64_t, const std::string*> tokens_;
  int64_t largest_id_ = -1;
  size_t longest_ = 0;
};

/// A token, and the bytes [begin, end) of the piece that it spells.
struct Token {
  int64_t id;
  uint32_t begin, end;

  bool operator==(const Token&) const = default;
};

/// Spells a piece of text with the tokens of a vocabulary.
class Model {
 public:
  explicit Model(const JsonView& vocabulary) : vocabulary_(vocabulary) {}
  virtual ~Model() = default;

  const Vocabulary& vocabulary() const { return vocabulary_; }
  /// Appends the tokens of a piece that is not empty. Throws Refusal if it needs an unknown token that the
  /// vocabulary lacks.
  virtual void encode(std::string_view piece, std::vector<Token>& tokens) const = 0;

 protected:
  /// Throws Refusal if the vocabulary lacks the token.
  int64_t unknown_id(std::string_view token) const;

 private:
  Vocabulary vocabulary_;
};

/// WordLevel: every piece is one token. A piece that the vocabulary lacks is the unknown token.
class WordLevelModel final : public Model {
 public:
  explicit WordLevelModel(const JsonView& json);

  void encode(std::string_view piece, std::vector<Token>& tokens) const override;

 private:
  std::string unknown_;
};

/// WordPiece: takes the longest token that the rest of a word begins with, again and again; behind the first
/// one, tokens carry a prefix such as "##". A word that cannot be spelled, or is too long, is the unknown
/// token. A word of n bytes costs O(n L²), where L are the bytes of the longest token.
class WordPieceModel final : public Model {
 public:
  explicit WordPieceModel(const JsonView& json);

  void encode(std::string_view piece, std::vector<Token>& tokens) const override;

 private:
  bool spell(std::string_view word, std::vector<Token>& tokens) const;

  std::string unknown_, prefix_;
  int64_t most_characters_;
};

/// Byte-pair encoding of a piece's characters; the merge that stands first in the list is done first.
class BpeModel final : public Model {
 public:
  explicit BpeModel(const JsonView& json);

  void encode(std::string_view piece, std::vector<Token>& tokens) const override;

 private:
  using Merge = NeighbourMerge<int32_t>;

  void add_merge(const JsonView& merges, size_t index, std::string_view left, std::string_view right,
                 uint32_t rank);
  void parse_merges(const JsonView& merges);
  std::vector<Token> characters(std::string_view piece) const;

  std::unordered_map<uint64_t, Merge> merges_;
  std::optional<std::string> unknown_;
  std::string prefix_, suffix_;  // of characters behind the first one, and of the last one
  bool fuse_unknown_ = false;
  bool ignore_merges_ = false;  // a piece that is a token needs no merges
};

/// Reads the file's "model". Old files do not state its type, which its members then tell.
std::unique_ptr<const Model> parse_model(const JsonView& json);

}  // namespace attentive::tokenizers
