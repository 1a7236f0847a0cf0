#include <algorithm>
#include <bit>
#include <limits>

#include <fmt/format.h>

#include "tokenizers/models.h"
#include "tokenizers/unicode.h"

namespace attentive::tokenizers {
namespace {

constexpr uint64_t kNoPair = std::numeric_limits<uint64_t>::max();  // ids are not negative

uint64_t pair_of(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

bool flag(const JsonView& json, std::string_view key) {
  const auto value = json.find(key);
  return value && value->boolean();
}

}  // namespace

void MergeTable::reserve(size_t merges) {
  slots_.assign(std::bit_ceil(merges + merges / 4 + 1), {kNoPair, 0, 0});
}

size_t MergeTable::place_of(uint64_t pair) const {
  const size_t mask = slots_.size() - 1;
  // A multiplication spreads neighbouring ids over the upper bits.
  uint64_t hash = pair * 0x9E3779B97F4A7C15ULL;
  hash ^= hash >> 32;
  size_t place = static_cast<size_t>(hash) & mask;
  while (slots_[place].pair != pair && slots_[place].pair != kNoPair) place = (place + 1) & mask;
  return place;
}

void MergeTable::add(int32_t left, int32_t right, uint32_t rank, int32_t token) {
  const auto pair = pair_of(left, right);
  slots_[place_of(pair)] = {pair, rank, token};
}

std::optional<MergeTable::Merge> MergeTable::find(int32_t left, int32_t right) const {
  const auto& slot = slots_[place_of(pair_of(left, right))];
  return slot.pair == kNoPair ? std::nullopt : std::optional(Merge{slot.rank, slot.token});
}

BpeModel::BpeModel(const JsonView& json) : Model(Vocabulary(json.at("vocab"))) {
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
  if (flag(json, "byte_fallback")) bytes_ = byte_ids();
  parse_merges(json.at("merges"));
}

// Each merge is written as "a b" or as ["a", "b"], and all merges of a file are written in the same form.
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
      if (!list[i].is_string()) (void)merges.item(i).string();
      const std::string_view line = list[i].get_ref<const std::string&>();
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
  merges_.add(left_id, right_id, rank, id_of(whole));
}

void BpeModel::Symbols::add(int32_t id, size_t size) {
  ids.push_back(id);
  sizes.push_back(static_cast<uint32_t>(size));
}

// Adds the tokens of a character's bytes. Returns false, and adds nothing, if a byte has no token.
bool BpeModel::spell_bytes(std::string_view character, Symbols& symbols) const {
  const auto id_of = [&](char byte) { return bytes_[static_cast<unsigned char>(byte)]; };
  if (bytes_.empty() || std::ranges::any_of(character, [&](char byte) { return id_of(byte) < 0; })) {
    return false;
  }
  for (const char byte : character) symbols.add(id_of(byte), 1);
  return true;
}

// Returns the tokens of single characters. A character that the vocabulary lacks is spelled by its bytes, or
// becomes the unknown token, or is left out if there is neither. As in Python, an unknown token is held back
// until the next character that is not spelled by bytes, or until the end, so that tokens of bytes can
// precede an unknown character that comes before them in the text.
BpeModel::Symbols BpeModel::characters(std::string_view piece) const {
  Symbols symbols;
  symbols.ids.reserve(piece.size());
  symbols.sizes.reserve(piece.size());
  std::string affixed;
  size_t unknown = 0;  // bytes of the character that waits; 0 if none does
  const auto end_unknown = [&] {
    if (unknown > 0) symbols.add(static_cast<int32_t>(unknown_id(*unknown_)), unknown);
    unknown = 0;
  };
  for (size_t offset = 0; offset < piece.size();) {
    const size_t begin = offset;
    (void)next_char(piece, offset);
    const size_t size = offset - begin;
    std::string_view character = piece.substr(begin, size);
    const bool prefixed = begin > 0 && !prefix_.empty(),
               suffixed = offset == piece.size() && !suffix_.empty();
    if (prefixed || suffixed) {
      affixed = (prefixed ? prefix_ : "") + std::string(character) + (suffixed ? suffix_ : "");
      character = affixed;
    }
    if (const auto id = vocabulary().id_of(character)) {
      end_unknown();
      symbols.add(static_cast<int32_t>(*id), size);
    } else if (!spell_bytes(character, symbols) && unknown_) {
      (void)unknown_id(*unknown_);  // throws if the vocabulary lacks the unknown token
      if (unknown > 0 && !fuse_unknown_) end_unknown();
      unknown += size;
    }
  }
  end_unknown();
  return symbols;
}

void BpeModel::encode(std::string_view piece, std::vector<Token>& tokens) const {
  if (ignore_merges_) {
    if (const auto id = vocabulary().id_of(piece)) {
      tokens.push_back({*id, 0, static_cast<uint32_t>(piece.size())});
      return;
    }
  }
  auto symbols = characters(piece);
  auto& ids = symbols.ids;
  join_neighbours(ids, [&](int32_t left, int32_t right) { return merges_.find(left, right); });
  // As in Python, the bytes of affixes are counted too, so that a place may lie beyond the end of the piece.
  uint32_t end = 0;
  for (size_t i = 0; i < ids.size();) {
    const uint32_t begin = end;
    const auto id = ids[i];
    do end += symbols.sizes[i++];
    while (i < ids.size() && ids[i] < 0);
    tokens.push_back({id, begin, end});
  }
}

}  // namespace attentive::tokenizers
