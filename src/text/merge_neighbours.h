#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <queue>
#include <tuple>
#include <vector>

namespace attentive {

/// The token that replaces two neighbours. Merges of a lower rank are done first.
template <std::signed_integral Token>
struct NeighbourMerge {
  int64_t rank;
  Token token;
};

/// Byte-pair encoding: joins the two neighbours whose merge has the lowest rank, the leftmost ones first,
/// until no merge applies. `merge_of(left, right)` is an optional `NeighbourMerge`. Tokens are not negative;
/// a token that was joined to its left neighbour is -1 afterwards. O(n log n).
template <std::signed_integral Token, class MergeOf>
void join_neighbours(std::vector<Token>& tokens, const MergeOf& merge_of) {
  // The tokens form a linked list; the heap holds candidates, some of them out of date.
  const size_t size = tokens.size();
  std::vector<size_t> next(size), previous(size);
  using Join = std::tuple<int64_t, size_t, Token>;  // rank, index of the left token, resulting token
  std::priority_queue<Join, std::vector<Join>, std::greater<>> joins;
  const auto offer = [&](size_t left, size_t right) {
    if (const auto merge = merge_of(tokens[left], tokens[right]))
      joins.emplace(merge->rank, left, merge->token);
  };
  for (size_t i = 0; i < size; ++i) {
    next[i] = i + 1;
    previous[i] = i - 1;  // the first element's value is never read
    if (i + 1 < size) offer(i, i + 1);
  }
  while (!joins.empty()) {
    const auto [rank, left, token] = joins.top();
    joins.pop();
    const size_t right = next[left];
    if (tokens[left] < 0 || right >= size) continue;
    const auto merge = merge_of(tokens[left], tokens[right]);
    if (!merge || merge->token != token) continue;
    tokens[left] = token;
    tokens[right] = -1;
    next[left] = next[right];
    if (next[left] < size) {
      previous[next[left]] = left;
      offer(left, next[left]);
    }
    if (left > 0) offer(previous[left], left);
  }
}

/// Joins as `join_neighbours` does, and removes the tokens that were joined to their left neighbours.
template <std::signed_integral Token, class MergeOf>
void merge_neighbours(std::vector<Token>& tokens, const MergeOf& merge_of) {
  join_neighbours(tokens, merge_of);
  std::erase(tokens, Token{-1});
}

}  // namespace attentive
