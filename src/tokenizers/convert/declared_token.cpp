#include "tokenizers/convert/declared_token.h"

#include <algorithm>
#include <tuple>

#include "base/refusal.h"

namespace attentive::tokenizers {
namespace {

bool stated_flag(const JsonView& json, std::string_view key) {
  return json.has(key) && json.at(key).boolean();
}

}  // namespace

bool DeclaredToken::operator==(const DeclaredToken& other) const {
  const auto facts = [](const DeclaredToken& token) {
    return std::tuple(std::string_view(token.content), token.single_word, token.lstrip, token.rstrip,
                      token.is_normalized(), token.special, token.is_text);
  };
  return facts(*this) == facts(other);
}

DeclaredToken text_token(std::string content) {
  DeclaredToken token;
  token.content = std::move(content);
  token.special = true;
  token.is_text = true;
  return token;
}

DeclaredToken control_token(std::string content, bool special) {
  DeclaredToken token;
  token.content = std::move(content);
  token.normalized = false;
  token.special = special;
  return token;
}

DeclaredToken parse_token_object(const JsonView& json) {
  json.only({"__type", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
  DeclaredToken token;
  token.content = json.at("content").string();
  token.single_word = stated_flag(json, "single_word");
  token.lstrip = stated_flag(json, "lstrip");
  token.rstrip = stated_flag(json, "rstrip");
  token.special = stated_flag(json, "special");
  if (const auto normalized = json.find("normalized")) token.normalized = normalized->boolean();
  return token;
}

DeclaredToken parse_declared_token(const JsonView& json) {
  if (json.raw().is_string()) return text_token(json.string());
  if (!json.has("__type") || json.at("__type").raw() != "AddedToken") {
    json.expected("a token: a string, or an object with \"__type\": \"AddedToken\"");
  }
  return parse_token_object(json);
}

AddedTokenList::AddedTokenList(size_t size, const std::unordered_map<std::string_view, int64_t>& ids)
    : size_(static_cast<int64_t>(size)), vocabulary_(ids) {}

void AddedTokenList::add(const std::vector<DeclaredToken>& tokens) {
  int64_t next = size_;
  if (!tokens_.empty()) next = std::max(next, tokens_.rbegin()->first + 1);
  for (const auto& declared : tokens) {
    if (declared.content.empty()) continue;
    const auto known = find(declared.content);
    const auto id = known ? *known : next++;
    ids_.insert_or_assign(declared.content, id);
    tokens_.insert_or_assign(id, declared);
  }
}

std::optional<int64_t> AddedTokenList::find(std::string_view token) const {
  if (const auto added = ids_.find(token); added != ids_.end()) return added->second;
  const auto known = vocabulary_.find(token);
  return known == vocabulary_.end() ? std::nullopt : std::optional(known->second);
}

int64_t AddedTokenList::id_of(std::string_view token) const {
  const auto id = find(token);
  if (!id) refuse("expected the token {}, which the vocabulary lacks", quoted_name(token));
  return *id;
}

nlohmann::json AddedTokenList::json() const {
  auto list = nlohmann::json::array();
  for (const auto& [id, token] : tokens_) {
    list.push_back({{"id", id},
                    {"content", token.content},
                    {"single_word", token.single_word},
                    {"lstrip", token.lstrip},
                    {"rstrip", token.rstrip},
                    {"normalized", token.is_normalized()},
                    {"special", token.special}});
  }
  return list;
}

}  // namespace attentive::tokenizers
