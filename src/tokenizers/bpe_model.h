#pragma once

#include <string>
#include <unordered_map>

#include "text/merge_neighbours.h"
#include "tokenizers/model.h"

namespace attentive::tokenizers {

/// Byte-pair encoding of a piece's characters; the merge that stands first in the list is done first.
class BpeModel final : public Model {
 public:
  explicit BpeModel(const JsonView& json);

  void encode(std::string_view piece, std::vector<int64_t>& ids) const override;

 private:
  using Merge = NeighbourMerge<int32_t>;

  void add_merge(const JsonView& merges, size_t index, std::string_view left, std::string_view right,
                 uint32_t rank);
  void parse_merges(const JsonView& merges);
  std::vector<int32_t> characters(std::string_view piece) const;

  std::unordered_map<uint64_t, Merge> merges_;
  std::optional<std::string> unknown_;
  std::string prefix_, suffix_;  // of characters behind the first one, and of the last one
  bool fuse_unknown_ = false;
  bool ignore_merges_ = false;  // a piece that is a token needs no merges
};

}  // namespace attentive::tokenizers
