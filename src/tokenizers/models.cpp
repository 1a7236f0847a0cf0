#include "tokenizers/models.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <limits>

#include <fmt/format.h>

#include "base/refusal.h"
#include "tokenizers/unicode.h"

namespace attentive::tokenizers {
namespace {

constexpr uint32_t kFree = std::numeric_limits<uint32_t>::max();

struct NamedId {
  int64_t id;
  std::string_view token;
};

}  // namespace

Vocabulary::Vocabulary(const JsonView& json) {
  if (!json.raw().is_object()) json.expected("an object of tokens and ids");
  std::vector<NamedId> all;
  all.reserve(json.raw().size());
  for (const auto& [token, value] : json.raw().get_ref<const nlohmann::json::object_t&>()) {
    // A view is made only for an error, because a vocabulary may have 100,000 entries.
    const bool plain = value.is_number_unsigned() && value.get<uint64_t>() < (uint64_t{1} << 31);
    all.push_back({plain ? value.get<int64_t>() : json.at(token).integer(), token});
  }
  std::ranges::stable_sort(all, {}, &NamedId::id);
  const auto twice = std::ranges::adjacent_find(all, {}, &NamedId::id);
  if (twice != all.end()) {
    refuse("{}: expected an id a token, got {} for two: {} and {}", json.path(), twice->id, twice->token,
           (twice + 1)->token);
  }
  begins_.reserve(all.size() + 1);
  for (const auto& one : all) append(one.token);
  if (largest_id() != (all.empty() ? -1 : all.back().id)) {
    for (const auto& one : all) ids_.push_back(static_cast<int32_t>(one.id));
  }
  index();
}

Vocabulary::Vocabulary(const std::vector<std::string_view>& tokens) {
  begins_.reserve(tokens.size() + 1);
  for (const auto token : tokens) append(token);
  index();
}

void Vocabulary::append(std::string_view token) {
  if (text_.size() + token.size() > std::numeric_limits<uint32_t>::max()) {
    refuse("expected a vocabulary of less than 4 GB");
  }
  text_ += token;
  begins_.push_back(static_cast<uint32_t>(text_.size()));
  longest_ = std::max(longest_, token.size());
}

void Vocabulary::index() {
  text_.shrink_to_fit();
  slots_.assign(std::bit_ceil(size() + size() / 2 + 1), {0, kFree});
  const size_t mask = slots_.size() - 1;
  for (size_t place = 0; place < size(); ++place) {
    const auto token = text_at(place);
    const auto hash = std::hash<std::string_view>()(token);
    const auto rest = static_cast<uint32_t>(hash >> 32);
    const auto other = [&](const Slot& slot) { return slot.hash != rest || text_at(slot.place) != token; };
    size_t slot = hash & mask;
    while (slots_[slot].place != kFree && other(slots_[slot])) slot = (slot + 1) & mask;
    slots_[slot] = {rest, static_cast<uint32_t>(place)};
  }
}

int64_t Vocabulary::largest_id() const {
  return size() == 0 ? -1 : id_at(size() - 1);
}

std::optional<int64_t> Vocabulary::id_of(std::string_view token) const {
  const auto hash = std::hash<std::string_view>()(token);
  const size_t mask = slots_.size() - 1;
  for (size_t slot = hash & mask; slots_[slot].place != kFree; slot = (slot + 1) & mask) {
    if (slots_[slot].hash == hash >> 32 && text_at(slots_[slot].place) == token) {
      return id_at(slots_[slot].place);
    }
  }
  return std::nullopt;
}

std::optional<std::string_view> Vocabulary::token_of(int64_t id) const {
  if (id < 0 || id > largest_id()) return std::nullopt;
  if (ids_.empty()) return text_at(static_cast<size_t>(id));
  const auto found = std::ranges::lower_bound(ids_, id);
  if (*found != id) return std::nullopt;
  return text_at(static_cast<size_t>(found - ids_.begin()));
}

namespace {

Token whole_piece(int64_t id, std::string_view piece) {
  return {id, 0, static_cast<uint32_t>(piece.size())};
}

}  // namespace

int64_t Model::unknown_id(std::string_view token) const {
  const auto id = vocabulary().id_of(token);
  if (!id) refuse("the text needs the unknown token \"{}\", which the vocabulary lacks", token);
  return *id;
}

std::vector<int32_t> Model::byte_ids() const {
  std::vector<int32_t> ids;
  for (int byte = 0; byte < 256; ++byte) {
    ids.push_back(static_cast<int32_t>(vocabulary().id_of(fmt::format("<0x{:02X}>", byte)).value_or(-1)));
  }
  return ids;
}

WordLevelModel::WordLevelModel(const JsonView& json) : Model(Vocabulary(json.at("vocab"))) {
  json.only({"type", "unk_token", "vocab"});
  unknown_ = json.at("unk_token").string();
}

void WordLevelModel::encode(std::string_view piece, std::vector<Token>& tokens) const {
  const auto id = vocabulary().id_of(piece);
  tokens.push_back(whole_piece(id ? *id : unknown_id(unknown_), piece));
}

WordPieceModel::WordPieceModel(const JsonView& json) : Model(Vocabulary(json.at("vocab"))) {
  json.only({"type", "unk_token", "continuing_subword_prefix", "max_input_chars_per_word", "vocab"});
  unknown_ = json.at("unk_token").string();
  prefix_ = json.at("continuing_subword_prefix").string();
  most_characters_ = json.at("max_input_chars_per_word").integer();
}

bool WordPieceModel::spell(std::string_view word, std::vector<Token>& tokens) const {
  std::string token;
  for (size_t begin = 0; begin < word.size();) {
    token = begin > 0 ? prefix_ : "";
    const size_t affix = token.size();
    token += word.substr(begin, vocabulary().longest());
    std::optional<int64_t> id;
    while (token.size() > affix) {
      const size_t end = begin + token.size() - affix;
      const bool whole = end == word.size() || begins_character(word[end]);
      if (whole && (id = vocabulary().id_of(token))) break;
      token.pop_back();
    }
    if (!id) return false;
    const size_t end = begin + token.size() - affix;
    tokens.push_back({*id, static_cast<uint32_t>(begin), static_cast<uint32_t>(end)});
    begin = end;
  }
  return true;
}

void WordPieceModel::encode(std::string_view word, std::vector<Token>& tokens) const {
  const size_t before = tokens.size();
  const auto characters = std::count_if(word.begin(), word.end(), begins_character);
  if (characters <= most_characters_ && spell(word, tokens)) return;
  tokens.resize(before);
  tokens.push_back(whole_piece(unknown_id(unknown_), word));
}

std::string model_type_of(const JsonView& json) {
  if (json.has("type")) return json.type();
  if (json.has("merges")) return "BPE";
  if (json.has("max_input_chars_per_word")) return "WordPiece";
  if (json.has("vocab") && json.at("vocab").raw().is_array()) return "Unigram";
  json.expected("a field \"type\"");
}

std::unique_ptr<const Model> parse_model(const JsonView& json) {
  const auto type = model_type_of(json);
  if (type == "BPE") return std::make_unique<BpeModel>(json);
  if (type == "Unigram") return std::make_unique<UnigramModel>(json);
  if (type == "WordPiece") return std::make_unique<WordPieceModel>(json);
  if (type == "WordLevel") return std::make_unique<WordLevelModel>(json);
  json.unsupported("the model " + type);
}

namespace {

constexpr size_t kLongestWord = 256;          // in bytes; longer words are rare and seldom repeated
constexpr size_t kMostSlots = 1 << 17;        // 3 MiB
constexpr size_t kMostCachedBytes = 1 << 22;  // the bytes of all words
constexpr size_t kMostTokens = 1 << 19;       // 8 MiB
constexpr size_t kMostProbes = 16;            // bounds a search for any text

// The hash mixes eight bytes at a time. A product carries upwards only: after one round, the last of eight
// bytes would not reach the bits that choose a slot, and the words "interXYZ" would share a few slots.
uint64_t hash_of(std::string_view word) {
  uint64_t hash = word.size();
  const auto mix = [&](uint64_t bytes) {
    hash = (hash ^ bytes) * 0x9E3779B97F4A7C15;
    hash ^= hash >> 32;
  };
  uint64_t bytes = 0;
  for (; word.size() > 8; word.remove_prefix(8)) {
    std::memcpy(&bytes, word.data(), 8);
    mix(bytes);
  }
  bytes = 0;
  std::memcpy(&bytes, word.data(), word.size());
  mix(bytes);
  mix(0);
  return hash == 0 ? 1 : hash;
}

}  // namespace

WordCache::Slot* WordCache::find(std::string_view word, uint64_t hash) {
  const size_t mask = slots_.size() - 1;
  for (size_t step = 0; step < kMostProbes; ++step) {
    auto& slot = slots_[(hash + step) & mask];
    if (slot.hash == 0) return &slot;
    if (slot.hash == hash && std::string_view(words_).substr(slot.word, slot.word_size) == word) return &slot;
  }
  return nullptr;
}

void WordCache::grow() {
  std::vector<Slot> before(2 * slots_.size());
  before.swap(slots_);
  used_ = 0;
  for (const auto& slot : before) {
    if (slot.hash == 0) continue;
    auto* place = find(std::string_view(words_).substr(slot.word, slot.word_size), slot.hash);
    if (!place) continue;
    *place = slot;
    ++used_;
  }
}

void WordCache::forget() {
  slots_.assign(slots_.size(), {});
  used_ = 0;
  words_.clear();
  tokens_.clear();
}

std::span<const Token> WordCache::spell(std::string_view word) {
  const bool kept = word.size() <= kLongestWord;
  const auto hash = kept ? hash_of(word) : 0;
  auto* slot = kept ? find(word, hash) : nullptr;
  if (slot && slot->hash != 0)
    return std::span<const Token>(tokens_).subspan(slot->tokens, slot->token_count);

  fresh_.clear();
  model_.encode(word, fresh_);
  if (!slot) return fresh_;
  if (words_.size() + word.size() > kMostCachedBytes || tokens_.size() + fresh_.size() > kMostTokens ||
      2 * (used_ + 1) > kMostSlots) {
    forget();
    slot = find(word, hash);
  } else if (2 * (used_ + 1) > slots_.size()) {
    grow();
    slot = find(word, hash);
    if (!slot) return fresh_;
  }
  *slot = {hash, static_cast<uint32_t>(words_.size()), static_cast<uint32_t>(word.size()),
           static_cast<uint32_t>(tokens_.size()), static_cast<uint32_t>(fresh_.size())};
  ++used_;
  words_ += word;
  tokens_.insert(tokens_.end(), fresh_.begin(), fresh_.end());
  return fresh_;
}

}  // namespace attentive::tokenizers
