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

/// The texts of the files that say how a folder's vocabulary is used. Empty where there is no such file.
struct SettingTexts {
  std::string tokenizer_config, special_tokens_map, added_tokens;
};

/// What `tokenizer_config.json`, `special_tokens_map.json` and `added_tokens.json` say together, as Python's
/// `from_pretrained` reads them: the first one states everything since transformers 4.34, the others complete
/// older ones.
class TokenizerSettings {
 public:
  using NamedTokens = std::vector<std::pair<std::string, DeclaredToken>>;

  TokenizerSettings() : config_(nlohmann::json::object()) {}
  /// Throws Refusal that names the file and the place.
  explicit TokenizerSettings(const SettingTexts& texts);

  /// A token such as "bos_token" where a file states one; std::nullopt in it: a file says that there is none.
  std::optional<std::optional<DeclaredToken>> named(std::string_view key) const;
  /// Tokens that only some models have, such as "image_token": their names and they.
  const NamedTokens& of_this_model() const { return of_this_model_; }
  /// "extra_special_tokens"; without a value where no file speaks of them.
  const std::optional<std::vector<DeclaredToken>>& extra() const { return extra_; }
  /// "additional_special_tokens", unless they are the extra ones.
  const std::optional<std::vector<DeclaredToken>>& additional() const { return additional_; }
  /// Tokens with the ids that a file states for them, by these ids.
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
  void take_added_for_named();

  // Whether the file's token counted as the text that it is when the added tokens were read: Python turns
  // objects in tokenizer_config.json into tokens after that.
  struct Named {
    std::optional<DeclaredToken> token;
    bool was_text = true;
  };

  nlohmann::json config_;
  std::map<std::string, Named, std::less<>> named_;
  NamedTokens of_this_model_;
  std::optional<std::vector<DeclaredToken>> extra_, additional_;
  std::set<std::string, std::less<>>
      extra_texts_;  // of extra_, what was a text when the added tokens were read
  std::map<int64_t, DeclaredToken> added_;
};

/// The names of tokens that every class of tokenizers knows, in Python's order.
const std::vector<std::string>& named_token_keys();

}  // namespace attentive::tokenizers
