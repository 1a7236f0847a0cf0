#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "tokenizers/convert/declared_token.h"

namespace attentive::tokenizers {

/// The texts of the setting files. A text is empty if there is no such file.
struct SettingTexts {
  std::string tokenizer_config, special_tokens_map, added_tokens;
};

/// The combined settings of `tokenizer_config.json`, `special_tokens_map.json` and `added_tokens.json`, as
/// Python's `from_pretrained` reads them: since transformers 4.34 the first file states everything, and the
/// others complete older ones.
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
