#pragma once

#include <string>
#include <unordered_map>

#include "tokenizers/model.h"

namespace attentive::tokenizers {

/// Byte-pair encoding: starts from the characters of a piece and joins the two neighbours whose merge stands
/// first in the list, the leftmost ones first, until no merge applies. A piece of n bytes costs O(n log n).
class BpeModel final : public Model {
 public:
  explicit BpeModel(const JsonView& json);

  void encode(std::string_view piece, std::vector<int64_t>& ids) const override;

 private:
  struct Merge {
    uint32_t rank;
    int32_t token;
  };

  void add_merge(const JsonView& merges, size_t index, std::string_view left, std::string_view right,
                 uint32_t rank);
  void parse_merges(const JsonView& merges);
  std::vector<int32_t> characters(std::string_view piece) const;
  int32_t unknown_id() const;
  const Merge* merge_of(int32_t left, int32_t right) const;
  void merge_all(std::vector<int32_t>& symbols) const;

  std::unordered_map<uint64_t, Merge> merges_;
  std::optional<std::string> unknown_;
  std::string prefix_, suffix_;  // of characters behind the first one, and of the last one
  bool fuse_unknown_ = false;
  bool ignore_merges_ = false;  // a piece that is a token needs no merges
};

}  // namespace attentive::tokenizers
