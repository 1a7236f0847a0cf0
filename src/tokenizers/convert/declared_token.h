#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <nlohmann/json.hpp>

#include "tokenizers/json_view.h"

namespace attentive::tokenizers {

/// A token that a folder's files declare beside the vocabulary: Python's `AddedToken`, or a plain string.
struct DeclaredToken {
  std::string content;
  bool single_word = false, lstrip = false, rstrip = false;
  std::optional<bool> normalized;  // if not stated, it is the opposite of `special`
  bool special = false;
  bool is_text = false;  // whether the file has a string

  /// Compares as Python does: `normalized` has its default value if it is not stated, and a string never
  /// equals an object.
  bool operator==(const DeclaredToken& other) const;
  bool is_normalized() const { return normalized.value_or(!special); }
};

/// Returns the special token that Python makes of a string.
DeclaredToken text_token(std::string content);
/// Returns the declaration of a vocabulary's own control token.
DeclaredToken control_token(std::string content, bool special);
/// Reads an object with the members of Python's `AddedToken`, and optionally "__type".
DeclaredToken parse_token_object(const JsonView& json);
/// Reads a string, or an object with "__type": "AddedToken".
DeclaredToken parse_declared_token(const JsonView& json);

/// Collects the tokens that are added to a vocabulary, as calls of Python's `add_tokens` do: a token that the
/// vocabulary has keeps its id, another one gets the next free id.
class AddedTokenList {
 public:
  /// `size` is the number of tokens of the vocabulary, and `ids` holds their ids, which must outlive the
  /// list.
  AddedTokenList(size_t size, const std::unordered_map<std::string_view, int64_t>& ids);

  /// Adds tokens as one call of Python's `add_tokens` does.
  void add(const std::vector<DeclaredToken>& tokens);
  /// Returns the id of a token, added or of the vocabulary. Throws Refusal if there is none.
  int64_t id_of(std::string_view token) const;
  /// Whether the vocabulary itself has a token.
  bool is_own(std::string_view token) const { return vocabulary_.contains(token); }
  /// Returns the document's "added_tokens".
  nlohmann::json json() const;

 private:
  std::optional<int64_t> find(std::string_view token) const;

  int64_t size_;
  const std::unordered_map<std::string_view, int64_t>& vocabulary_;
  std::map<std::string, int64_t, std::less<>> ids_;
  std::map<int64_t, DeclaredToken> tokens_;
};

}  // namespace attentive::tokenizers
