#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

namespace attentive::tokenizers {

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

}  // namespace attentive::tokenizers
