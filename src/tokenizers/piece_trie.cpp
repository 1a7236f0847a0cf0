#include "tokenizers/piece_trie.h"

#include <algorithm>

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

}  // namespace attentive::tokenizers
