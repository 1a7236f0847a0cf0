#pragma once

#include <array>
#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "tokenizers/models.h"
#include "tokenizers/normalizers.h"
#include "tokenizers/pieces.h"

namespace attentive::tokenizers {

struct HashText {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};

/// A token that is not part of the model's vocabulary proper and is found in a text before the model sees it.
struct AddedToken {
  std::string content;
  std::string decoded;  // the text that the decoder gets: the normalized content if `normalized`
  bool single_word = false, lstrip = false, rstrip = false, normalized = false, special = false;
};

/// A set of texts that are searched for in another text: the leftmost match wins, and of those at one place
/// the longest.
class TextSet {
 public:
  /// Of several ids with one text, the first stays. (Python's tokenizers chooses one at random.)
  void add(std::string_view text, int64_t id);
  bool empty() const { return nodes_.size() == 1; }
  /// False for a byte with which no member begins.
  bool may_begin_with(char byte) const { return first_bytes_[static_cast<unsigned char>(byte)]; }
  /// The id and the size of the longest member with which `text` begins; size 0 if there is none.
  std::pair<int64_t, size_t> longest_at(std::string_view text) const;

 private:
  struct Node {
    std::map<char, size_t> next;
    int64_t id = -1;
  };
  std::vector<Node> nodes_{1};
  std::array<bool, 256> first_bytes_{};
};

/// The file's "added_tokens". Their ids must be those that Python would assign: a token of the model's
/// vocabulary keeps its id there, and the others get the ids that follow the model's, in the order of the
/// file.
class AddedTokens {
 public:
  AddedTokens(const JsonView& json, const Vocabulary& model, const Normalizer& normalizer);

  /// Cuts the added tokens out of a text and normalizes the rest: tokens with `normalized` unset are searched
  /// in the original text, the others afterwards in the normalized text.
  void extract(Pieces& pieces, const Normalizer& normalizer) const;

  /// Null if no added token has the id.
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
