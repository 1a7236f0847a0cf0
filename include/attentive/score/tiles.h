#pragma once

// A mask function evaluated for all pairs of a tile at once: its indices are ranges. A range may be wider
// than what the pairs have, so that a condition may remain open: if the range cannot decide, each pair is
// tested.

#include <array>
#include <concepts>
#include <cstdint>
#include <type_traits>

#include <attentive/score/score_callbacks.h>

namespace attentive::detail {

/// The part of an evaluation over a tile that its operands do not hold.
struct TileEvaluation {
  const CapturedView* captured = nullptr;
  /// out: an index may be beyond a captured tensor, or divided by 0, so that the pairs decide.
  bool faulty = false;
};

/// A condition: whether it may be true for some pairs, and false for some.
struct TileMask {
  bool may_hold = true, may_fail = true;

  template <class T>
  requires std::same_as<T, bool>
  operator T() const { return no_bool<T>(); }
};

/// An index of each pair, in [least, most].
struct TileIndex {
  int64_t least, most;
  TileEvaluation* tile = nullptr;  ///< null: a number of the function itself

  TileIndex(int64_t from, int64_t to, TileEvaluation* by) : least(from), most(to), tile(by) {}
  TileIndex(std::integral auto number)  // NOLINT(google-explicit-constructor)
      : TileIndex(static_cast<int64_t>(number), static_cast<int64_t>(number), nullptr) {}
};

/// A number per pair, of which nothing is known.
struct TileNumber {
  TileNumber() = default;
  TileNumber(double) {}            // NOLINT(google-explicit-constructor)
  TileNumber(const TileIndex&) {}  // NOLINT(google-explicit-constructor)
};

/// The places of the pairs of a tile.
struct TilePairs {
  TileIndex batch, head, query, key, queries, keys;
};

TileMask operator&(const TileMask& a, const TileMask& b);
TileMask operator|(const TileMask& a, const TileMask& b);
TileMask operator^(const TileMask& a, const TileMask& b);
TileMask operator!(const TileMask& a);

TileIndex operator+(const TileIndex& a, const TileIndex& b);
TileIndex operator-(const TileIndex& a, const TileIndex& b);
TileIndex operator*(const TileIndex& a, const TileIndex& b);
TileIndex operator/(const TileIndex& a, const TileIndex& b);
TileIndex operator%(const TileIndex& a, const TileIndex& b);
TileIndex operator-(const TileIndex& a);
TileIndex operator+(const TileIndex& a);
#define ATTENTIVE_COMPARE(OP) TileMask operator OP(const TileIndex& a, const TileIndex& b);
ATTENTIVE_COMPARISONS(ATTENTIVE_COMPARE)
#undef ATTENTIVE_COMPARE
TileIndex abs(const TileIndex& a);
TileIndex min(const TileIndex& a, const TileIndex& b);
TileIndex max(const TileIndex& a, const TileIndex& b);
TileIndex floor(const TileIndex& a);
TileIndex where(const TileMask& condition, const TileIndex& yes, const TileIndex& no);

// Results of numbers are not known either.
#define ATTENTIVE_OF_ONE(function)                \
  inline TileNumber function(const TileNumber&) { \
    return {};                                    \
  }
#define ATTENTIVE_OF_TWO(function)                                   \
  inline TileNumber function(const TileNumber&, const TileNumber&) { \
    return {};                                                       \
  }
#define ATTENTIVE_COMPARE(OP)                                         \
  inline TileMask operator OP(const TileNumber&, const TileNumber&) { \
    return {};                                                        \
  }
ATTENTIVE_SCORE_FUNCTIONS(ATTENTIVE_OF_ONE)
ATTENTIVE_OF_ONE(abs)
ATTENTIVE_OF_ONE(floor)
ATTENTIVE_OF_ONE(operator-)
ATTENTIVE_OF_ONE(operator+)
ATTENTIVE_OF_TWO(operator+)
ATTENTIVE_OF_TWO(operator-)
ATTENTIVE_OF_TWO(operator*)
ATTENTIVE_OF_TWO(operator/)
ATTENTIVE_OF_TWO(pow)
ATTENTIVE_OF_TWO(min)
ATTENTIVE_OF_TWO(max)
ATTENTIVE_COMPARISONS(ATTENTIVE_COMPARE)
#undef ATTENTIVE_OF_ONE
#undef ATTENTIVE_OF_TWO
#undef ATTENTIVE_COMPARE
inline TileNumber where(const TileMask&, const TileNumber&, const TileNumber&) {
  return {};
}
template <class A, class B>
requires std::is_arithmetic_v<A> && std::is_arithmetic_v<B> TileNumber where(const TileMask&, A, B) {
  return {};
}

/// The arguments of a lookup: indices and integers, or `pair` and then integers.
struct TileArguments {
  TileEvaluation* tile = nullptr;
  std::array<int64_t, kMostIndices> least = {}, most = {};
  int count = 0;

  template <class... I>
  explicit TileArguments(const I&... given) {
    (add(given), ...);
  }

 private:
  void add(const TilePairs& pair) { tile = pair.batch.tile; }
  void add(const TileIndex& index) {
    if (index.tile) tile = index.tile;
    least[static_cast<size_t>(count)] = index.least;
    most[static_cast<size_t>(count++)] = index.most;
  }
};

/// The numbers of a captured tensor at these indices; `faulty` says that an index may be beyond it.
TileNumber look_up_numbers(const void* owner, const TileArguments& arguments);
TileIndex look_up_indices(const void* owner, const TileArguments& arguments);

/// The condition that a function returned.
inline TileMask tile_mask_of(const TileMask& result) {
  return result;
}
inline TileMask tile_mask_of(bool result) {
  return {result, !result};
}

}  // namespace attentive::detail
