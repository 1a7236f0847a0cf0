#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/merge_neighbours.h"
#include "tokenizers/models.h"

namespace attentive::tokenizers {

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

}  // namespace attentive::tokenizers
