#include <algorithm>
#include <limits>
#include <map>
#include <queue>
#include <set>
#include <utility>

#include <c10/util/Exception.h>
#include <nlohmann/json.hpp>

#include <attentive/text/bpe_tokenizer.h>

#include "text/byte_pairs.h"

namespace attentive {
namespace {

constexpr const char* kBpeTokenizer = "BpeTokenizer";
constexpr int64_t kBytes = 256;
constexpr size_t kLongestPiece = BpeTokenizer::kLongestPiece;

uint64_t key_of(int64_t left, int64_t right) {
  return static_cast<uint64_t>(left) << 32 | static_cast<uint64_t>(right);
}

enum class Kind { Letter, Digit, Space, Sign };

Kind kind_of(unsigned char c) {
  if ((c | 32) >= 'a' && (c | 32) <= 'z') return Kind::Letter;
  if (c >= 128) return Kind::Letter;
  if (c >= '0' && c <= '9') return Kind::Digit;
  if (c == ' ' || (c >= '\t' && c <= '\r')) return Kind::Space;
  return Kind::Sign;
}

// The end of the piece that begins at `begin`.
size_t piece_end(std::string_view text, size_t begin) {
  const auto kind = [&](size_t i) { return kind_of(static_cast<unsigned char>(text[i])); };
  size_t offset = begin;
  // One space belongs to the following word.
  if (text[offset] == ' ' && offset + 1 < text.size() && kind(offset + 1) != Kind::Space) ++offset;
  const auto run = kind(offset);
  size_t end = offset + 1;
  while (end < text.size() && kind(end) == run && end - begin < kLongestPiece) ++end;
  // A run of spaces leaves its last one to the following word.
  if (run == Kind::Space && end < text.size() && text[end - 1] == ' ' && end - begin > 1) --end;
  return end;
}

template <class Visit>
void for_each_piece(std::string_view text, Visit visit) {
  for (size_t begin = 0; begin < text.size();) {
    const auto end = piece_end(text, begin);
    visit(text.substr(begin, end - begin));
    begin = end;
  }
}

// A distinct piece of the training text, with its current tokens.
struct Word {
  std::vector<int64_t> ids;
  int64_t count = 0;
};

// Counts how often each pair of neighbours occurs and in which words; kept up to date while tokens are
// merged.
class PairCounts {
 public:
  explicit PairCounts(std::vector<Word> words) : words_(std::move(words)) {
    for (size_t w = 0; w < words_.size(); ++w) add(w, +1);
    for (const auto& [pair, count] : counts_) heap_.emplace(count, pair);
  }

  // Finds the most frequent pair, the smallest one among equals; false if no pair occurs twice.
  bool best(BpeTokenizer::Merge& pair) {
    while (!heap_.empty()) {
      const auto [count, candidate] = heap_.top();
      if (counts_[candidate] == count) {
        pair = candidate;
        return count >= 2;
      }
      heap_.pop();  // an outdated count; the current one has its own entry
    }
    return false;
  }

  void merge(const BpeTokenizer::Merge& pair, int64_t id) {
    changed_.clear();
    const auto where = std::move(places_[pair]);
    places_.erase(pair);
    for (const size_t w : where) {
      add(w, -1);
      auto& ids = words_[w].ids;
      size_t out = 0;
      for (size_t i = 0; i < ids.size(); ++out) {
        const bool join = i + 1 < ids.size() && ids[i] == pair.first && ids[i + 1] == pair.second;
        ids[out] = join ? id : ids[i];
        i += join ? 2 : 1;
      }
      ids.resize(out);
      add(w, +1);
    }
    for (const auto& touched : changed_) {
      if (counts_[touched] > 0) heap_.emplace(counts_[touched], touched);
    }
  }

 private:
  struct Less {  // the heap's top: highest count, then smallest pair
    bool operator()(const std::pair<int64_t, BpeTokenizer::Merge>& a,
                    const std::pair<int64_t, BpeTokenizer::Merge>& b) const {
      return a.first != b.first ? a.first < b.first : a.second > b.second;
    }
  };

  void add(size_t w, int64_t sign) {
    const auto& word = words_[w];
    for (size_t i = 0; i + 1 < word.ids.size(); ++i) {
      const BpeTokenizer::Merge pair{word.ids[i], word.ids[i + 1]};
      counts_[pair] += sign * word.count;
      if (sign > 0) places_[pair].insert(w);
      changed_.insert(pair);
    }
  }

  std::vector<Word> words_;
  std::map<BpeTokenizer::Merge, int64_t> counts_;
  std::map<BpeTokenizer::Merge, std::set<size_t>> places_;
  std::set<BpeTokenizer::Merge> changed_;
  std::priority_queue<std::pair<int64_t, BpeTokenizer::Merge>,
                      std::vector<std::pair<int64_t, BpeTokenizer::Merge>>, Less>
      heap_;
};

std::vector<int64_t> byte_ids(std::string_view piece) {
  std::vector<int64_t> ids;
  for (const unsigned char byte : piece) ids.push_back(byte);
  return ids;
}

}  // namespace

BpeTokenizer BpeTokenizer::train(std::string_view text, int64_t vocab_size) {
  TORCH_CHECK_VALUE(!text.empty(), kBpeTokenizer,
                    ": expected a text with at least one byte, got an empty one");
  TORCH_CHECK_VALUE(vocab_size >= kBytes && vocab_size <= std::numeric_limits<int32_t>::max(), kBpeTokenizer,
                    ": expected vocab_size of at least 256 (the bytes), got ", vocab_size);
  std::map<std::string_view, int64_t> pieces;
  for_each_piece(text, [&](std::string_view piece) { ++pieces[piece]; });
  std::vector<Word> words;
  for (const auto& [piece, count] : pieces) words.push_back({byte_ids(piece), count});

  PairCounts pairs(std::move(words));
  std::vector<Merge> merges;
  Merge pair;
  while (static_cast<int64_t>(merges.size()) < vocab_size - kBytes && pairs.best(pair)) {
    pairs.merge(pair, kBytes + static_cast<int64_t>(merges.size()));
    merges.push_back(pair);
  }
  return BpeTokenizer(std::move(merges));
}

BpeTokenizer::BpeTokenizer(std::vector<Merge> merges) : merges_(std::move(merges)) {
  for (int64_t byte = 0; byte < kBytes; ++byte) bytes_.emplace_back(1, static_cast<char>(byte));
  for (const auto& [left, right] : merges_) {
    const auto id = vocab_size();
    TORCH_CHECK_VALUE(std::min(left, right) >= 0 && std::max(left, right) < id, kBpeTokenizer,
                      ": expected merge ", id - kBytes, " to join two tokens below ", id, ", got (", left,
                      ", ", right, ")");
    const bool fresh = ranks_.emplace(key_of(left, right), id).second;
    TORCH_CHECK_VALUE(fresh, kBpeTokenizer, ": expected distinct merges, got (", left, ", ", right,
                      ") twice");
    bytes_.push_back(bytes_[static_cast<size_t>(left)] + bytes_[static_cast<size_t>(right)]);
    TORCH_CHECK_VALUE(bytes_.back().size() <= kLongestPiece, kBpeTokenizer, ": expected tokens of at most ",
                      kLongestPiece, " bytes, got ", bytes_.back().size(), " for merge ", id - kBytes);
  }
}

int64_t BpeTokenizer::vocab_size() const {
  return static_cast<int64_t>(bytes_.size());
}

std::vector<int64_t> BpeTokenizer::encode(std::string_view text) const {
  std::vector<int64_t> ids;
  std::unordered_map<std::string_view, std::vector<int64_t>> known;  // texts repeat their words
  for_each_piece(text, [&](std::string_view piece) {
    auto [entry, fresh] = known.try_emplace(piece);
    if (fresh) encode_piece(piece, entry->second);
    ids.insert(ids.end(), entry->second.begin(), entry->second.end());
  });
  return ids;
}

// Joins the pair whose token was learned first.
void BpeTokenizer::encode_piece(std::string_view piece, std::vector<int64_t>& out) const {
  auto ids = byte_ids(piece);
  merge_neighbours(ids, [&](int64_t left, int64_t right) -> std::optional<NeighbourMerge<int64_t>> {
    const auto found = ranks_.find(key_of(left, right));
    if (found == ranks_.end()) return std::nullopt;
    return NeighbourMerge<int64_t>{found->second, found->second};
  });
  out.insert(out.end(), ids.begin(), ids.end());
}

std::string_view BpeTokenizer::bytes(int64_t id) const {
  TORCH_CHECK_VALUE(id >= 0 && id < vocab_size(), kBpeTokenizer, ": expected ids in [0, ", vocab_size(),
                    "), got ", id);
  return bytes_[static_cast<size_t>(id)];
}

std::string BpeTokenizer::to_json() const {
  nlohmann::json merges = nlohmann::json::array();
  for (const auto& [left, right] : merges_) merges.push_back({left, right});
  return nlohmann::json{{"type", "bpe"}, {"merges", merges}}.dump();
}

}  // namespace attentive
