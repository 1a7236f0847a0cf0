#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/byte_pairs.h"
#include "tokenizers/json_view.h"

namespace attentive::tokenizers {

/// The tokens of a model and their ids. The tokens are stored in one string, sorted by id: a vocabulary of
/// 256,000 pieces takes about 10 MB.
class Vocabulary {
 public:
  /// Reads an object of tokens and ids, in which each id must have one token.
  explicit Vocabulary(const JsonView& json);
  /// Takes a list, in which ids are indices. If tokens are equal, `id_of` returns the id of the last one.
  explicit Vocabulary(const std::vector<std::string_view>& tokens);

  size_t size() const { return begins_.size() - 1; }
  int64_t largest_id() const;                  // -1 if there is none
  size_t longest() const { return longest_; }  // bytes of the longest token
  std::optional<int64_t> id_of(std::string_view token) const;
  /// The token of an id, or std::nullopt. The text lives as long as the vocabulary.
  std::optional<std::string_view> token_of(int64_t id) const;

  /// Calls `visit(token, id)` for every token, sorted by id.
  template <class Visit>
  void for_each(Visit visit) const {
    for (size_t i = 0; i < size(); ++i) visit(text_at(i), id_at(i));
  }

 private:
  struct Slot {
    uint32_t hash, place;
  };

  std::string_view text_at(size_t place) const {
    return std::string_view(text_).substr(begins_[place], begins_[place + 1] - begins_[place]);
  }
  int64_t id_at(size_t place) const { return ids_.empty() ? static_cast<int64_t>(place) : ids_[place]; }
  void append(std::string_view token);
  void index();

  std::string text_;
  std::vector<uint32_t> begins_{0};
  std::vector<int32_t> ids_;  // empty if ids are indices
  std::vector<Slot> slots_;   // a hash table of the indices of tokens
  size_t longest_ = 0;
};

/// A token, and the bytes [begin, end) of the piece that it spells.
struct Token {
  int64_t id;
  uint32_t begin, end;

  bool operator==(const Token&) const = default;
};

/// Spells a piece of text with the tokens of a vocabulary.
class Model {
 public:
  explicit Model(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}
  virtual ~Model() = default;

  const Vocabulary& vocabulary() const { return vocabulary_; }
  /// Appends the tokens of `piece`, which must not be empty. Throws Refusal if it needs an unknown token that
  /// the vocabulary lacks.
  virtual void encode(std::string_view piece, std::vector<Token>& tokens) const = 0;

 protected:
  /// Throws Refusal if the vocabulary lacks the token.
  int64_t unknown_id(std::string_view token) const;
  /// The ids of "<0x00>" to "<0xFF>", the tokens that spell single bytes; -1 for those that the vocabulary
  /// lacks.
  std::vector<int32_t> byte_ids() const;

 private:
  Vocabulary vocabulary_;
};

/// The WordLevel model makes every piece one token; a piece that the vocabulary lacks becomes the unknown
/// token.
class WordLevelModel final : public Model {
 public:
  explicit WordLevelModel(const JsonView& json);

  void encode(std::string_view piece, std::vector<Token>& tokens) const override;

 private:
  std::string unknown_;
};

/// The WordPiece model repeatedly takes the longest token with which the rest of a word begins; after the
/// first one, tokens carry a prefix such as "##". A word that cannot be spelled, or is too long, becomes the
/// unknown token. A word of n bytes costs O(n L²), where L is the number of bytes of the longest token.
class WordPieceModel final : public Model {
 public:
  explicit WordPieceModel(const JsonView& json);

  void encode(std::string_view piece, std::vector<Token>& tokens) const override;

 private:
  bool spell(std::string_view word, std::vector<Token>& tokens) const;

  std::string unknown_, prefix_;
  int64_t most_characters_;
};

/// The type of the file's "model". In old files, which do not state it, its members identify it.
std::string model_type_of(const JsonView& json);

/// Reads the file's "model".
std::unique_ptr<const Model> parse_model(const JsonView& json);

/// The merges of pairs of tokens: a hash table that takes 16 to 32 bytes per merge.
class MergeTable {
 public:
  using Merge = NeighbourMerge<int32_t>;

  void reserve(size_t merges);
  /// Adds a merge; a pair that was added before gets the new one.
  void add(int32_t left, int32_t right, uint32_t rank, int32_t token);
  std::optional<Merge> find(int32_t left, int32_t right) const;

 private:
  struct Slot {
    uint64_t pair;
    uint32_t rank;
    int32_t token;
  };

  /// The slot of the pair, or the free one in which it would be stored.
  size_t place_of(uint64_t pair) const;

  std::vector<Slot> slots_;
};

/// Byte-pair encoding of a piece's characters; the merge that stands first in the list is done first. With
/// `byte_fallback`, a character that the vocabulary lacks is spelled by the tokens of its bytes, such as
/// "<0xE2>".
class BpeModel final : public Model {
 public:
  explicit BpeModel(const JsonView& json);

  void encode(std::string_view piece, std::vector<Token>& tokens) const override;

 private:
  struct Symbols {
    std::vector<int32_t> ids;
    std::vector<uint32_t> sizes;  // the bytes of the piece that each token covers

    void add(int32_t id, size_t size);
  };

  void add_merge(const JsonView& merges, size_t index, std::string_view left, std::string_view right,
                 uint32_t rank);
  void parse_merges(const JsonView& merges);
  Symbols characters(std::string_view piece) const;
  bool spell_bytes(std::string_view character, Symbols& symbols) const;

  MergeTable merges_;
  std::optional<std::string> unknown_;
  std::string prefix_, suffix_;  // the affixes of characters after the first one, and of the last one
  std::vector<int32_t> bytes_;   // the id of each byte's token; empty without byte_fallback
  bool fuse_unknown_ = false;
  bool ignore_merges_ = false;  // whether a piece that is a token is taken without merging
};

/// A trie that finds every piece with which a text begins. Nodes are stored by depth, so that the children of
/// a node are contiguous and a node takes nine bytes.
class PieceTrie {
 public:
  using NamedPiece = std::pair<std::string_view, int32_t>;

  /// Builds the trie. If pieces are equal, the one with the largest id counts; empty pieces are left out.
  explicit PieceTrie(std::vector<NamedPiece> pieces);

  /// Calls `visit(bytes, id)` for each piece at the start of `text`, the shortest first.
  template <class Visit>
  void for_each_prefix(std::string_view text, Visit visit) const {
    if (text.empty()) return;
    uint32_t node = second_[static_cast<unsigned char>(text[0])];
    for (size_t size = 1; node != 0; ++size) {
      if (nodes_[node].id >= 0) visit(size, nodes_[node].id);
      if (size == text.size()) return;
      node = child(node, text[size]);
    }
  }

 private:
  struct Node {
    uint32_t first_child;
    int32_t id;  // -1: no piece ends here
  };

  /// Returns the child that the byte leads to, or 0, which is the root, if there is none.
  uint32_t child(uint32_t node, char label) const {
    const uint32_t first = nodes_[node].first_child;
    const size_t count = nodes_[node + 1].first_child - first;
    const char* const labels = labels_.data() + first;
    const auto* const found = static_cast<const char*>(std::memchr(labels, label, count));
    return found ? first + static_cast<uint32_t>(found - labels) : 0;
  }

  std::vector<Node> nodes_;
  std::vector<char> labels_;            // the byte that leads to each node
  std::array<uint32_t, 256> second_{};  // the root's children
};

/// The Unigram model chooses, among all ways to spell a piece with the vocabulary, the one with the largest
/// sum of scores. A character that the vocabulary lacks is unknown and scores 10 less than the lowest piece.
/// Unknown neighbours become one token, or with `byte_fallback` the tokens of their bytes, such as "<0xE2>".
///
/// A piece of n bytes costs O(n L), where L is the number of bytes of the longest token, and 16 n bytes of
/// memory.
/// Source: Kudo 2018, https://arxiv.org/abs/1804.10959
class UnigramModel final : public Model {
 public:
  explicit UnigramModel(const JsonView& json);

  void encode(std::string_view piece, std::vector<Token>& tokens) const override;

 private:
  /// The last token of the best way to spell a piece up to a place.
  struct Arrival {
    double score;
    uint32_t begin;
    int32_t id;
  };

  std::vector<Arrival> best_arrivals(std::string_view piece) const;
  void spell_unknown(std::string_view text, uint32_t begin, std::vector<Token>& tokens) const;
  int64_t unknown_or_refuse() const;

  PieceTrie trie_;
  std::vector<double> scores_;  // by id
  double unknown_score_ = 0;
  std::optional<int32_t> unknown_;
  std::vector<int32_t> bytes_;  // the id of each byte's token; empty without byte_fallback
};

/// A cache of the tokens of words: a text repeats its words, and so do the texts of a batch. The cache is
/// cleared when it would grow beyond about 16 MB. Only one thread may use it at a time.
class WordCache {
 public:
  explicit WordCache(const Model& model) : model_(model), slots_(kFewestSlots) {}

  /// Returns the tokens of a word, valid until the next call. Throws what the model throws.
  std::span<const Token> spell(std::string_view word);

 private:
  struct Slot {
    uint64_t hash = 0;  // 0: free
    uint32_t word = 0, word_size = 0, tokens = 0, token_count = 0;
  };
  static constexpr size_t kFewestSlots = 64;

  /// Returns the slot of a word, or the free one for it; null if too many other words have the same place.
  Slot* find(std::string_view word, uint64_t hash);
  void grow();
  void forget();

  const Model& model_;
  std::vector<Slot> slots_;  // their number is a power of two; at most half of them are used
  size_t used_ = 0;
  std::string words_;
  std::vector<Token> tokens_;
  std::vector<Token> fresh_;
};

}  // namespace attentive::tokenizers
