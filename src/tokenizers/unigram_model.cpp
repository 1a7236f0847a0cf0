#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "base/refusal.h"
#include "tokenizers/models.h"
#include "tokenizers/unicode.h"

namespace attentive::tokenizers {
namespace {

// The range of pieces that a node's descendants spell: they have a common beginning, so they are neighbours
// in the sorted list.
struct Range {
  uint32_t begin, end;
};

}  // namespace

PieceTrie::PieceTrie(std::vector<NamedPiece> pieces) {
  std::ranges::sort(pieces);
  const auto place = [](size_t i) { return static_cast<uint32_t>(i); };
  const auto same_as_next = [&](size_t i) {
    return i + 1 < pieces.size() && pieces[i].first == pieces[i + 1].first;
  };
  size_t count = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (!pieces[i].first.empty() && !same_as_next(i)) pieces[count++] = pieces[i];
  }
  pieces.resize(count);

  // The trie is built level by level: the ranges of one level's nodes give those of the next level.
  std::vector<Range> level{{0, place(count)}}, next;
  labels_.push_back(0);
  for (size_t depth = 0; !level.empty(); ++depth, level.swap(next)) {
    next.clear();
    const size_t first = nodes_.size() + level.size();  // index of the next level's first node
    for (const auto& range : level) {
      uint32_t i = range.begin;
      const bool ends = i < range.end && pieces[i].first.size() == depth;
      nodes_.push_back({place(first + next.size()), ends ? pieces[i].second : -1});
      if (ends) ++i;
      while (i < range.end) {
        const char label = pieces[i].first[depth];
        const uint32_t begin = i;
        while (i < range.end && pieces[i].first[depth] == label) ++i;
        labels_.push_back(label);
        next.push_back({begin, i});
      }
    }
  }
  nodes_.push_back({place(nodes_.size()), -1});  // a sentinel: the end of the last node's children
  for (uint32_t i = nodes_[0].first_child; i < nodes_[1].first_child; ++i)
    second_[static_cast<unsigned char>(labels_[i])] = i;
}

namespace {

constexpr size_t kLongestPiece = 1024;  // in bytes; a search may read this many at each place of a text
constexpr double kUnknownPenalty = 10;
constexpr uint32_t kUnreached = std::numeric_limits<uint32_t>::max();

// Reads pieces and their scores, such as [["<unk>", 0.0], ["▁the", -3.1]].
Vocabulary parse_scored_pieces(const JsonView& json) {
  const auto& list = json.raw();
  if (!list.is_array()) json.expected("an array of pieces and their scores");
  std::vector<std::string_view> pieces;
  pieces.reserve(list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    const auto& pair = list[i];
    const bool is_pair = pair.is_array() && pair.size() == 2 && pair[0].is_string() && pair[1].is_number();
    if (!is_pair || !std::isfinite(pair[1].get<double>())) json.item(i).expected("a piece and its score");
    pieces.push_back(pair[0].get_ref<const std::string&>());
    if (pieces.back().size() > kLongestPiece) {
      json.item(i).expected(fmt::format("a piece of at most {} bytes", kLongestPiece));
    }
  }
  return Vocabulary(pieces);
}

PieceTrie trie_of(const Vocabulary& vocabulary) {
  std::vector<PieceTrie::NamedPiece> pieces;
  pieces.reserve(vocabulary.size());
  vocabulary.for_each(
      [&](std::string_view piece, int64_t id) { pieces.emplace_back(piece, static_cast<int32_t>(id)); });
  return PieceTrie(std::move(pieces));
}

}  // namespace

UnigramModel::UnigramModel(const JsonView& json)
    : Model(parse_scored_pieces(json.at("vocab"))), trie_(trie_of(vocabulary())) {
  json.only({"type", "unk_id", "vocab", "byte_fallback"});
  double least = std::numeric_limits<double>::infinity();
  scores_.reserve(vocabulary().size());
  for (const auto& pair : json.at("vocab").raw()) {
    scores_.push_back(pair[1].get<double>());
    least = std::min(least, scores_.back());
  }
  unknown_score_ = least - kUnknownPenalty;
  if (const auto unknown = json.find("unk_id")) {
    if (scores_.empty()) unknown->expected("null, as there is no piece");
    unknown_ = static_cast<int32_t>(unknown->integer(0, vocabulary().largest_id()));
  }
  const auto fallback = json.find("byte_fallback");
  if (fallback && fallback->boolean()) bytes_ = byte_ids();
}

int64_t UnigramModel::unknown_or_refuse() const {
  if (!unknown_) refuse("the text needs an unknown token, and the model's unk_id is null");
  return *unknown_;
}

// If two ways have equal scores, the one that was found first stays.
std::vector<UnigramModel::Arrival> UnigramModel::best_arrivals(std::string_view piece) const {
  std::vector<Arrival> best(piece.size() + 1, Arrival{0, kUnreached, 0});
  for (size_t offset = 0; offset < piece.size();) {
    const size_t begin = offset;
    (void)next_char(piece, offset);
    const double here = best[begin].score;
    const auto arrive = [&](size_t end, double score) {
      auto& arrival = best[end];
      if (arrival.begin != kUnreached && !(score > arrival.score)) return false;
      arrival.score = score;
      arrival.begin = static_cast<uint32_t>(begin);
      return true;
    };
    trie_.for_each_prefix(piece.substr(begin), [&](size_t size, int32_t id) {
      if (arrive(begin + size, scores_[static_cast<size_t>(id)] + here)) best[begin + size].id = id;
    });
    // Where a piece is this character, the unknown token cannot win: its score is less than that of any
    // piece.
    if (arrive(offset, unknown_score_ + here)) best[offset].id = static_cast<int32_t>(unknown_or_refuse());
  }
  return best;
}

// Spells a run of unknown characters, whose text together may still be a piece.
void UnigramModel::spell_unknown(std::string_view text, uint32_t begin, std::vector<Token>& tokens) const {
  const uint32_t end = begin + static_cast<uint32_t>(text.size());
  if (const auto id = vocabulary().id_of(text)) return tokens.push_back({*id, begin, end});
  const auto id_of = [&](char byte) { return bytes_[static_cast<unsigned char>(byte)]; };
  if (bytes_.empty() || std::ranges::any_of(text, [&](char byte) { return id_of(byte) < 0; })) {
    return tokens.push_back({unknown_or_refuse(), begin, end});
  }
  for (const char byte : text) tokens.push_back({id_of(byte), begin, end});  // spans the whole run
}

void UnigramModel::encode(std::string_view piece, std::vector<Token>& tokens) const {
  const auto best = best_arrivals(piece);
  std::vector<uint32_t> ends;  // of the tokens, last first; unknown neighbours form one
  bool unknown_after = false;
  for (auto end = static_cast<uint32_t>(piece.size()); end > 0; end = best[end].begin) {
    const bool unknown = best[end].id == unknown_;
    if (!(unknown && unknown_after)) ends.push_back(end);
    unknown_after = unknown;
  }
  uint32_t begin = 0;
  for (auto end = ends.rbegin(); end != ends.rend(); begin = *end++) {
    if (best[*end].id == unknown_) {
      spell_unknown(piece.substr(begin, *end - begin), begin, tokens);
    } else {
      tokens.push_back({best[*end].id, begin, *end});
    }
  }
}

}  // namespace attentive::tokenizers
