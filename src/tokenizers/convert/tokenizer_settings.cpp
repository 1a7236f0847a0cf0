#include "tokenizers/convert/tokenizer_settings.h"

#include <algorithm>
#include <charconv>
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

std::vector<std::pair<int64_t, DeclaredToken>> parse_file_tokens(const nlohmann::json& file) {
  std::vector<std::pair<int64_t, DeclaredToken>> tokens;
  const auto list = JsonView(file).find("added_tokens");
  if (!list) return tokens;
  for (const auto& item : list->items()) {
    const auto id = item.at("id").integer();
    auto token = item.raw();
    token.erase("id");
    tokens.emplace_back(id, parse_token_object(JsonView(token, item.path())));
  }
  return tokens;
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

namespace {

constexpr const char* kConfig = "tokenizer_config.json";
constexpr const char* kMap = "special_tokens_map.json";
constexpr const char* kAdded = "added_tokens.json";
constexpr const char* kAdditional = "additional_special_tokens";
constexpr const char* kExtra = "extra_special_tokens";
constexpr const char* kOfThisModel = "model_specific_special_tokens";
constexpr size_t kMostListed = 16384;  // the tokens of a list, which are compared pairwise

bool is_named(std::string_view key) {
  const auto& keys = named_token_keys();
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

std::optional<std::vector<DeclaredToken>> parse_token_list(const JsonView& json) {
  if (json.is_null()) return std::nullopt;
  if (json.items().size() > kMostListed) json.expected(fmt::format("at most {} tokens", kMostListed));
  std::vector<DeclaredToken> tokens;
  for (const auto& item : json.items()) {
    tokens.push_back(item.raw().is_object() ? parse_token_object(item) : parse_declared_token(item));
  }
  return tokens;
}

int64_t id_of_text(std::string_view text, const JsonView& json) {
  int64_t id = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (error != std::errc() || end != text.data() + text.size() || id < 0) json.expected("ids as members");
  return id;
}

// Sets the member of that name, or appends it.
void set_token(TokenizerSettings::NamedTokens& tokens, const std::string& key, DeclaredToken token) {
  const auto same =
      std::find_if(tokens.begin(), tokens.end(), [&](const auto& entry) { return entry.first == key; });
  if (same != tokens.end()) {
    same->second = std::move(token);
    return;
  }
  if (tokens.size() == kMostListed) refuse("expected at most {} named tokens", kMostListed);
  tokens.emplace_back(key, std::move(token));
}

}  // namespace

nlohmann::json parse_settings(const std::string& text, const char* file) {
  if (text.empty()) return nlohmann::json::object();
  try {
    auto document = parse_json(text);
    if (!document.is_object()) JsonView(document).expected("an object");
    return document;
  } catch (const Refusal& refusal) {
    refuse("{}: {}", file, refusal.what());
  }
}

const std::vector<std::string>& named_token_keys() {
  static const std::vector<std::string> keys{"bos_token", "eos_token", "unk_token", "sep_token",
                                             "pad_token", "cls_token", "mask_token"};
  return keys;
}

// The keys of a document in the order of its text, which a parsed document has lost. Added tokens that the
// vocabulary lacks get their ids in this order.
struct TokenizerSettings::KeyOrder {
  std::vector<std::string> keys;
  // The keys of the objects "extra_special_tokens" and "model_specific_special_tokens".
  std::vector<std::string> extra, of_this_model;

  explicit KeyOrder(const std::string& text) {
    if (text.empty()) return;
    std::set<std::string, std::less<>> seen;
    const auto note = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& value) {
      if (event != nlohmann::json::parse_event_t::key || depth > 2) return true;
      const auto& key = value.get_ref<const std::string&>();
      if (depth == 1 && seen.insert(key).second) keys.push_back(key);
      if (depth == 2 && keys.back() == kExtra) extra.push_back(key);
      if (depth == 2 && keys.back() == kOfThisModel) of_this_model.push_back(key);
      return true;
    };
    [[maybe_unused]] const auto document = nlohmann::json::parse(text, note, /*allow_exceptions=*/false);
  }
};

TokenizerSettings::TokenizerSettings(const SettingTexts& texts)
    : config_(parse_settings(texts.tokenizer_config, kConfig)) {
  const auto within = [](const char* file, const auto& read) {
    try {
      read();
    } catch (const Refusal& refusal) {
      refuse("{}: {}", file, refusal.what());
    }
  };
  NamedTokens late;
  within(kConfig, [&] { read_config(KeyOrder(texts.tokenizer_config), late); });
  if (!states("added_tokens_decoder")) {
    const auto map = parse_settings(texts.special_tokens_map, kMap);
    within(kMap, [&] { read_special_tokens_map(map, KeyOrder(texts.special_tokens_map).keys); });
    const auto tokens = parse_settings(texts.added_tokens, kAdded);
    within(kAdded, [&] { read_added_tokens(tokens); });
    if (texts.file) {
      for (auto& [id, token] : parse_file_tokens(*texts.file)) {
        auto& place = added_[id];
        for (auto& [key, named] : named_) {  // a named token stays what the older file says of its text
          if (named.token && named.token->content == place.content) named.token = place;
        }
        place = std::move(token);
      }
    }
  }
  if (texts.file) {
    for (const char* key : {"add_bos_token", "add_eos_token"}) config_.erase(key);
  }
  for (auto& [key, token] : late) set_token(of_this_model_, key, std::move(token));
}

// As in Python, the additional tokens count as extra ones if a file states no extra ones. `late` receives the
// tokens of this model that Python puts after those of the other file.
void TokenizerSettings::read_config(const KeyOrder& order, NamedTokens& late) {
  const JsonView config(config_);
  if (config.has("init_inputs") && !config.at("init_inputs").raw().empty()) {
    config.at("init_inputs").unsupported("an argument without a name");
  }
  const bool has_extra =
      config.has(kExtra) && !config.at(kExtra).is_null() && !config.at(kExtra).raw().empty();
  const bool extra_is_object = config.has(kExtra) && config.at(kExtra).raw().is_object();
  const char* extra_key = config.has(kAdditional) && !has_extra ? kAdditional : kExtra;
  if (config.has(extra_key) && !(extra_key == kExtra && extra_is_object)) {
    extra_ = parse_token_list(config.at(extra_key)).value_or(std::vector<DeclaredToken>());
  }
  if (config.has(kAdditional) && extra_key == kExtra) additional_ = parse_token_list(config.at(kAdditional));

  for (const auto& token : extra_.value_or(std::vector<DeclaredToken>())) {
    if (token.is_text) extra_texts_.insert(token.content);
  }

  for (const auto& key : order.keys) {
    if (!config.has(key) || !key.ends_with("_token")) continue;
    const auto value = config.at(key);
    if (is_named(key)) {
      named_[key] = value.is_null() ? Named{std::nullopt, false}
                                    : Named{parse_declared_token(value), value.raw().is_string()};
    } else if (value.raw().is_object()) {
      set_token(of_this_model_, key, parse_declared_token(value));
    } else if (value.raw().is_string()) {
      set_token(late, key, text_token(value.string()));
    }
  }
  if (extra_key == kExtra && extra_is_object) {
    for (const auto& key : order.extra) {
      set_token(late, key, parse_declared_token(config.at(kExtra).at(key)));
    }
  }
  if (late.empty() && config.has(kOfThisModel)) {
    for (const auto& key : order.of_this_model) {
      set_token(late, key, parse_declared_token(config.at(kOfThisModel).at(key)));
    }
  }
  if (!states("added_tokens_decoder")) return;
  const auto added = config.at("added_tokens_decoder");
  if (!added.raw().is_object()) added.expected("an object of ids and tokens");
  std::set<std::string> contents;  // Python takes the last of two equal tokens; here they are refused
  for (const auto& [id, token] : added.raw().items()) {
    if (!contents.insert(added.at(id).at("content").string()).second) {
      added.at(id).at("content").expected("a token that has no other id");
    }
    if (!added_.emplace(id_of_text(id, added), parse_token_object(added.at(id))).second) {
      added.expected("each id once");
    }
  }
}

// Reads special_tokens_map.json, which takes precedence over tokenizer_config.json.
void TokenizerSettings::read_special_tokens_map(const nlohmann::json& map,
                                                const std::vector<std::string>& keys) {
  const JsonView view(map);
  for (const auto& key : keys) {
    const auto value = view.at(key);
    if (key == kAdditional) {
      additional_ = parse_token_list(value);
    } else if (key == kExtra) {
      auto tokens = extra_.value_or(std::vector<DeclaredToken>());
      for (auto& token : parse_token_list(value).value_or(std::vector<DeclaredToken>())) {
        token.special = true;
        extra_texts_.insert(token.content);
        if (std::find(tokens.begin(), tokens.end(), token) == tokens.end())
          tokens.push_back(std::move(token));
      }
      extra_ = std::move(tokens);
    } else if (key.ends_with("_token")) {
      if (value.is_null()) {
        if (is_named(key)) named_[key] = Named{std::nullopt, false};
        continue;
      }
      auto token = value.raw().is_object() ? parse_token_object(value) : parse_declared_token(value);
      token.special = true;
      if (is_named(key)) {
        named_[key] = Named{std::move(token)};
      } else {
        set_token(of_this_model_, key, std::move(token));
      }
    }
  }
}

void TokenizerSettings::read_added_tokens(const nlohmann::json& tokens) {
  const JsonView view(tokens);
  std::set<std::string, std::less<>> special;
  for (const auto& [key, named] : named_) {
    if (named.token && named.was_text) special.insert(named.token->content);
  }
  for (const auto& [content, id] : tokens.items()) {
    DeclaredToken token;
    token.content = content;
    token.special = special.contains(content) || extra_texts_.contains(content);
    token.normalized = !token.special;
    if (!added_.emplace(view.at(content).integer(), token).second) {
      view.at(content).expected("an id that no other token has");
    }
  }
}

void TokenizerSettings::find_added_first() {
  for (auto& [id, token] : added_) token.normalized = false;
}

std::optional<std::optional<DeclaredToken>> TokenizerSettings::named(std::string_view key) const {
  const auto found = named_.find(key);
  if (found == named_.end()) return std::nullopt;
  return found->second.token;
}

std::optional<bool> TokenizerSettings::flag(std::string_view key) const {
  const auto value = JsonView(config_, kConfig).find(key);
  return value ? std::optional(value->boolean()) : std::nullopt;
}

bool TokenizerSettings::flag(std::string_view key, bool otherwise) const {
  return flag(key).value_or(otherwise);
}

int64_t TokenizerSettings::integer(std::string_view key, int64_t otherwise) const {
  const auto value = JsonView(config_, kConfig).find(key);
  return value ? value->integer() : otherwise;
}

}  // namespace attentive::tokenizers
