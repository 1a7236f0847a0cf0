#include "tokenizers/convert/draft.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/refusal.h"

namespace attentive::tokenizers {

NamedTokenTable::NamedTokenTable(const Defaults& defaults, const TokenizerSettings& settings) {
  for (const auto& key : named_token_keys()) {
    const auto usual =
        std::find_if(defaults.begin(), defaults.end(), [&](const auto& entry) { return entry.first == key; });
    std::optional<DeclaredToken> token;
    if (usual != defaults.end()) token = text_token(usual->second);
    if (const auto stated = settings.named(key)) token = *stated;
    tokens_.emplace_back(key, std::move(token));
  }
  for (const auto& [key, token] : settings.of_this_model()) {
    if (has(key)) {
      at(key) = token;
    } else {
      tokens_.emplace_back(key, token);
    }
  }
}

std::optional<DeclaredToken>& NamedTokenTable::at(std::string_view key) {
  return std::find_if(tokens_.begin(), tokens_.end(), [&](const auto& entry) { return entry.first == key; })
      ->second;
}

bool NamedTokenTable::has(std::string_view key) const {
  return std::any_of(tokens_.begin(), tokens_.end(),
                     [&](const auto& entry) { return entry.first == key && entry.second; });
}

const std::string& NamedTokenTable::text(std::string_view key) const {
  if (!has(key)) refuse("expected a token as {}, got none", key);
  return std::find_if(tokens_.begin(), tokens_.end(), [&](const auto& entry) { return entry.first == key; })
      ->second->content;
}

std::unordered_map<std::string_view, int64_t> ids_of_model(const nlohmann::json& model) {
  std::unordered_map<std::string_view, int64_t> ids;
  const auto& vocabulary = model["vocab"];
  ids.reserve(vocabulary.size());
  if (vocabulary.is_object()) {
    for (const auto& [token, id] : vocabulary.items()) ids.emplace(token, id.get<int64_t>());
    return ids;
  }
  int64_t place = 0;  // if two tokens are equal, the last one counts
  for (const auto& entry : vocabulary) ids[entry[0].get_ref<const std::string&>()] = place++;
  return ids;
}

std::vector<DeclaredToken> tokens_to_add(const Draft& draft, const TokenizerSettings& settings) {
  std::vector<DeclaredToken> tokens;
  std::map<std::string, std::vector<DeclaredToken>> offered;  // by content; equal tokens are added once
  std::set<std::string_view> stated, names;
  for (const auto& [id, token] : settings.added()) {
    tokens.push_back(token);
    stated.insert(token.content);
  }
  const auto offer = [&](const DeclaredToken& token) {
    if (stated.contains(token.content)) return;
    auto& same = offered[token.content];
    if (std::find(same.begin(), same.end(), token) != same.end()) return;
    same.push_back(token);
    tokens.push_back(token);
  };
  for (const auto& [key, token] : draft.named.all()) {
    if (!token) continue;
    names.insert(token->content);
    offer(*token);
  }
  if (draft.extra) {
    for (const auto& token : *draft.extra) offer(token);
  }
  for (auto& token : tokens) {
    if (names.contains(token.content)) token.special = true;
  }
  return tokens;
}

}  // namespace attentive::tokenizers
