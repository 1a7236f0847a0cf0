#include "tokenizers/models.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/refusal.h"
#include "tokenizers/unicode.h"

namespace attentive::tokenizers {

Vocabulary::Vocabulary(const JsonView& json) {
  if (!json.raw().is_object()) json.expected("an object of tokens and ids");
  ids_.reserve(json.raw().size());
  tokens_.reserve(json.raw().size());
  for (const auto& [token, value] : json.raw().items()) {
    // A view only where there is something to say: a vocabulary has 100,000 entries.
    const bool plain = value.is_number_unsigned() && value.get<uint64_t>() < (uint64_t{1} << 31);
    const auto id = plain ? value.get<int64_t>() : json.at(token).integer();
    const auto [entry, fresh] = ids_.emplace(token, id);
    const auto [other, free] = tokens_.emplace(id, &entry->first);
    if (!free)
      refuse("{}: expected an id a token, got {} for two: {} and {}", json.path(), id, *other->second, token);
    largest_id_ = std::max(largest_id_, id);
    longest_ = std::max(longest_, token.size());
  }
}

std::optional<int64_t> Vocabulary::id_of(std::string_view token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

const std::string* Vocabulary::token_of(int64_t id) const {
  const auto found = tokens_.find(id);
  return found == tokens_.end() ? nullptr : found->second;
}

WordLevelModel::WordLevelModel(const JsonView& json) : Model(json.at("vocab")) {
  json.only({"type", "unk_token", "vocab"});
  unknown_ = json.at("unk_token").string();
}

namespace {

// A token that spells the whole piece. Only the first 4 GiB of a piece are counted, which a text with offsets has.
Token whole_piece(int64_t id, std::string_view piece) {
  return {id, 0, static_cast<uint32_t>(piece.size())};
}

}  // namespace

void WordLevelModel::encode(std::string_view piece, std::vector<Token>& tokens) const {
  const auto id = vocabulary().id_of(piece);
  tokens.push_back(whole_piece(id ? *id : unknown_id(unknown_), piece));
}

WordPieceModel::WordPieceModel(const JsonView& json) : Model(json.at("vocab")) {
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

namespace {

uint64_t key_of(int32_t left, int32_t right) {
  return static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
}

bool flag(const JsonView& json, std::string_view key) {
  const auto value = json.find(key);
  return value && value->boolean();
}

}  // namespace

BpeModel::BpeModel(const JsonView& json) : Model(json.at("vocab")) {
  json.only({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
             "byte_fallback", "ignore_merges", "vocab", "merges"});
  if (json.has("type")) (void)json.type();
  if (const auto dropout = json.find("dropout"); dropout && dropout->raw() != 0) {
    dropout->unsupported("a random choice of merges");
  }
  if (const auto unknown = json.find("unk_token")) unknown_ = unknown->string();
  if (const auto prefix = json.find("continuing_subword_prefix")) prefix_ = prefix->string();
  if (const auto suffix = json.find("end_of_word_suffix")) suffix_ = suffix->string();
  fuse_unknown_ = flag(json, "fuse_unk");
  ignore_merges_ = flag(json, "ignore_merges");
  if (flag(json, "byte_fallback")) json.at("byte_fallback").unsupported("byte_fallback");
  parse_merges(json.at("merges"));
}

// Either "a b" or ["a", "b"], but one form for all.
void BpeModel::parse_merges(const JsonView& merges) {
  const auto& list = merges.raw();
  if (!list.is_array()) merges.expected("an array");
  merges_.reserve(list.size());
  const bool pairs = !list.empty() && list[0].is_array();
  uint32_t rank = 0;
  for (size_t i = 0; i < list.size(); ++i) {
    if (pairs) {
      const auto& pair = list[i];
      if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string()) {
        merges.item(i).expected("two tokens");
      }
      add_merge(merges, i, pair[0].get_ref<const std::string&>(), pair[1].get_ref<const std::string&>(),
                rank++);
    } else {
      const std::string_view line = merges.item(i).string();
      if (line.starts_with("#version")) continue;
      const auto space = line.find(' ');
      if (space == line.npos || line.find(' ', space + 1) != line.npos) {
        merges.item(i).expected("two tokens with a space between them");
      }
      add_merge(merges, i, line.substr(0, space), line.substr(space + 1), rank++);
    }
  }
}

void BpeModel::add_merge(const JsonView& merges, size_t index, std::string_view left, std::string_view right,
                         uint32_t rank) {
  if (right.size() < prefix_.size())
    merges.item(index).expected("a second token that begins with the prefix");
  const auto whole = std::string(left) + std::string(right.substr(prefix_.size()));
  const auto id_of = [&](std::string_view token) {
    const auto id = vocabulary().id_of(token);
    if (!id) merges.item(index).expected(fmt::format("tokens of the vocabulary, which lacks \"{}\"", token));
    return static_cast<int32_t>(*id);
  };
  const auto left_id = id_of(left), right_id = id_of(right);
  merges_.insert_or_assign(key_of(left_id, right_id), Merge{rank, id_of(whole)});
}

// The tokens of single characters. One that the vocabulary lacks is the unknown token, or is left out if
// there is none: what follows moves to its place, as in Python.
std::vector<Token> BpeModel::characters(std::string_view piece) const {
  std::vector<Token> symbols;
  symbols.reserve(piece.size());
  std::string affixed;
  bool unknown_before = false;
  uint32_t end = 0;
  for (size_t at = 0; at < piece.size();) {
    const size_t begin = at;
    (void)next_char(piece, at);
    std::string_view character = piece.substr(begin, at - begin);
    const bool prefixed = begin > 0 && !prefix_.empty(), suffixed = at == piece.size() && !suffix_.empty();
    if (prefixed || suffixed) {
      affixed = (prefixed ? prefix_ : "") + std::string(character) + (suffixed ? suffix_ : "");
      character = affixed;
    }
    const auto id = vocabulary().id_of(character);
    if (id || unknown_) {
      const auto size = static_cast<uint32_t>(at - begin);
      if (!id && unknown_before && fuse_unknown_) {
        symbols.back().end += size;
      } else {
        symbols.push_back({id ? *id : unknown_id(*unknown_), end, end + size});
      }
      end += size;
    }
    unknown_before = !id && unknown_;
  }
  return symbols;
}

void BpeModel::encode(std::string_view piece, std::vector<Token>& tokens) const {
  if (ignore_merges_) {
    if (const auto id = vocabulary().id_of(piece)) {
      tokens.push_back(whole_piece(*id, piece));
      return;
    }
  }
  const auto symbols = characters(piece);
  std::vector<int32_t> ids;
  ids.reserve(symbols.size());
  for (const auto& symbol : symbols) ids.push_back(static_cast<int32_t>(symbol.id));
  join_neighbours(ids, [&](int32_t left, int32_t right) -> std::optional<Merge> {
    const auto found = merges_.find(key_of(left, right));
    return found == merges_.end() ? std::nullopt : std::optional(found->second);
  });
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0) {
      tokens.back().end = symbols[i].end;
    } else {
      tokens.push_back({ids[i], symbols[i].begin, symbols[i].end});
    }
  }
}

namespace {

std::string type_of(const JsonView& json) {
  if (json.has("type")) return json.type();
  if (json.has("merges")) return "BPE";
  if (json.has("max_input_chars_per_word")) return "WordPiece";
  if (json.has("vocab") && json.at("vocab").raw().is_array()) return "Unigram";
  json.expected("a field \"type\"");
}

}  // namespace

int64_t Model::unknown_id(std::string_view token) const {
  const auto id = vocabulary().id_of(token);
  if (!id) refuse("the text needs the unknown token \"{}\", which the vocabulary lacks", token);
  return *id;
}

std::unique_ptr<const Model> parse_model(const JsonView& json) {
  const auto type = type_of(json);
  if (type == "BPE") return std::make_unique<BpeModel>(json);
  if (type == "WordPiece") return std::make_unique<WordPieceModel>(json);
  if (type == "WordLevel") return std::make_unique<WordLevelModel>(json);
  json.unsupported("the model " + type);
}

}  // namespace attentive::tokenizers
