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

/// A token that a folder's files declare beside the vocabulary: Python's `AddedToken`, or a mere text.
struct DeclaredToken {
  std::string content;
  bool single_word = false, lstrip = false, rstrip = false;
  std::optional<bool> normalized;  // where a file leaves it open, it is what `special` is not
  bool special = false;
  bool is_text = false;  // a string in the file

  /// As Python compares: a token that leaves a member open equals one that states it, and no text equals an
  /// object.
  bool operator==(const DeclaredToken& other) const;
  bool is_normalized() const { return normalized.value_or(!special); }
};

/// A mere text, which Python makes a special token.
DeclaredToken text_token(std::string content);
/// A token that a vocabulary's own control tokens are.
DeclaredToken control_token(std::string content, bool special);
/// An object with the members of Python's `AddedToken`, and perhaps its "__type".
DeclaredToken parse_token_object(const JsonView& json);
/// A text, or an object that says "__type": "AddedToken".
DeclaredToken parse_declared_token(const JsonView& json);

/// The tokens that are added to a vocabulary, as Python's `add_tokens` adds them one after the other: a token that
/// the vocabulary has keeps its id there, another one gets the next free id.
class AddedTokenList {
 public:
  /// `size`: how many tokens the vocabulary has; `ids`: their ids. Both must outlive the list.
  AddedTokenList(size_t size, const std::unordered_map<std::string_view, int64_t>& ids);

  /// One call of Python's `add_tokens`.
  void add(const std::vector<DeclaredToken>& tokens);
  /// The id of a token, added or of the vocabulary. Throws Refusal if there is none.
  int64_t id_of(std::string_view token) const;
  /// Whether the vocabulary itself has a token.
  bool is_own(std::string_view token) const { return vocabulary_.contains(token); }
  /// The document's "added_tokens".
  nlohmann::json json() const;

 private:
  std::optional<int64_t> find(std::string_view token) const;

  int64_t size_;
  const std::unordered_map<std::string_view, int64_t>& vocabulary_;
  std::map<std::string, int64_t, std::less<>> ids_;
  std::map<int64_t, DeclaredToken> tokens_;
};

}  // namespace attentive::tokenizers
