#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
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
/// Reads the "added_tokens" of a tokenizer.json, with the ids that it states.
std::vector<std::pair<int64_t, DeclaredToken>> parse_file_tokens(const nlohmann::json& file);
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
  bool has(std::string_view token) const { return ids_.contains(token); }
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

/// Parses the text of a setting file, which must be an object; an empty text is one without members. Throws
/// Refusal that names the file.
nlohmann::json parse_settings(const std::string& text, const char* file);

/// The texts of the setting files. A text is empty if there is no such file.
struct SettingTexts {
  std::string tokenizer_config, special_tokens_map, added_tokens;
  const nlohmann::json* file = nullptr;  ///< the folder's tokenizer.json, if it has one
};

/// The combined settings of `tokenizer_config.json`, `special_tokens_map.json` and `added_tokens.json`, as
/// Python's `from_pretrained` reads them: since transformers 4.34 the first file states everything, and the
/// others complete older ones. Beside a `tokenizer.json`, Python ignores add_bos_token and add_eos_token, and
/// the added tokens of that file count unless the first file states them.
class TokenizerSettings {
 public:
  using NamedTokens = std::vector<std::pair<std::string, DeclaredToken>>;

  TokenizerSettings() : config_(nlohmann::json::object()) {}
  /// Reads the files. Throws Refusal that names the file and the place.
  explicit TokenizerSettings(const SettingTexts& texts);

  /// Returns a token such as "bos_token", or std::nullopt if no file mentions it; the inner std::nullopt
  /// means that a file states null.
  std::optional<std::optional<DeclaredToken>> named(std::string_view key) const;
  /// The named tokens that only some models have, such as "image_token".
  const NamedTokens& of_this_model() const { return of_this_model_; }
  /// The "extra_special_tokens"; std::nullopt if no file mentions them.
  const std::optional<std::vector<DeclaredToken>>& extra() const { return extra_; }
  /// The "additional_special_tokens", unless Python treats them as the extra ones.
  const std::optional<std::vector<DeclaredToken>>& additional() const { return additional_; }
  /// The tokens for which a file states ids, by these ids.
  const std::map<int64_t, DeclaredToken>& added() const { return added_; }
  /// Has the tokens of `added` found before a text is normalized.
  void find_added_first();

  bool flag(std::string_view key, bool otherwise) const;
  std::optional<bool> flag(std::string_view key) const;
  int64_t integer(std::string_view key, int64_t otherwise) const;
  bool states(std::string_view key) const { return config_.contains(key); }

 private:
  struct KeyOrder;
  void read_config(const KeyOrder& order, NamedTokens& late);
  void read_special_tokens_map(const nlohmann::json& map, const std::vector<std::string>& keys);
  void read_added_tokens(const nlohmann::json& tokens);

  // A named token, and whether it counted as a string when the added tokens were read: Python turns the
  // objects of tokenizer_config.json into tokens only after that.
  struct Named {
    std::optional<DeclaredToken> token;
    bool was_text = true;
  };

  nlohmann::json config_;
  std::map<std::string, Named, std::less<>> named_;
  NamedTokens of_this_model_;
  std::optional<std::vector<DeclaredToken>> extra_, additional_;
  // The contents of extra tokens that were strings when the added tokens were read.
  std::set<std::string, std::less<>> extra_texts_;
  std::map<int64_t, DeclaredToken> added_;
};

/// Returns the names of tokens that every class of tokenizers knows, in Python's order.
const std::vector<std::string>& named_token_keys();

}  // namespace attentive::tokenizers
