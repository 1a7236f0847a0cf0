#pragma once

#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "tokenizers/models.h"
#include "tokenizers/normalizer.h"
#include "tokenizers/pieces.h"

namespace attentive::tokenizers {

struct HashText {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};

/// A token beside the model's own, which is found in a text before anything else.
struct AddedToken {
  std::string content;
  std::string decoded;  // what the decoder gets: normalized, if the token is matched so
  bool single_word = false, lstrip = false, rstrip = false, normalized = false, special = false;
};

/// Texts, to be found in another one: the leftmost first, of those the longest.
class TextSet {
 public:
  void add(std::string_view text, int64_t id);
  bool empty() const { return nodes_.size() == 1; }
  /// The longest member at the start of `text`: its id and size; size 0 if there is none.
  std::pair<int64_t, size_t> longest_at(std::string_view text) const;

 private:
  struct Node {
    std::map<char, size_t> next;
    int64_t id = -1;
  };
  std::vector<Node> nodes_{1};
};

/// The file's "added_tokens". Their ids must be those that Python would give them: of a token of the model
/// its own, of the others the ones that follow the model's, in the order of the file.
class AddedTokens {
 public:
  AddedTokens(const JsonView& json, const Vocabulary& model, const Normalizer& normalizer);

  /// Cuts the added tokens out of a text, and normalizes the rest on the way: tokens that are matched as they
  /// are come first, the normalized ones after.
  void extract(Pieces& pieces, const Normalizer& normalizer) const;

  /// Null if the id is not an added token's.
  const AddedToken* find(int64_t id) const;
  std::optional<int64_t> id_of(std::string_view content) const;
  int64_t largest_id() const { return largest_id_; }
  /// True for the content of a special token.
  bool is_special(std::string_view content) const;

 private:
  void add(const JsonView& json, const Normalizer& normalizer);
  void extract(const Piece& piece, const TextSet& set, std::vector<Piece>& out) const;

  std::unordered_map<int64_t, AddedToken> tokens_;
  std::unordered_map<std::string, int64_t, HashText, std::equal_to<>> ids_;
  TextSet plain_, normalized_;
  int64_t largest_id_ = -1;
};

}  // namespace attentive::tokenizers
