#include <algorithm>
#include <limits>

#include <attentive/score/tiles.h>

namespace attentive::detail {
namespace {

constexpr int64_t kLeast = std::numeric_limits<int64_t>::min(), kMost = std::numeric_limits<int64_t>::max();

TileEvaluation* tile_of(const TileIndex& a, const TileIndex& b) {
  return a.tile ? a.tile : b.tile;
}

TileIndex anything(TileEvaluation* tile) {
  return {kLeast, kMost, tile};
}

// The range of an operation that takes its least and its largest result at ends of its operands' ranges.
// `operation` returns whether a result is beyond int64, and then nothing is known.
template <class Operation>
TileIndex of_ends(const TileIndex& a, const TileIndex& b, const Operation& operation) {
  TileIndex result(kMost, kLeast, tile_of(a, b));
  for (const int64_t x : {a.least, a.most}) {
    for (const int64_t y : {b.least, b.most}) {
      int64_t n = 0;
      if (operation(x, y, &n)) return anything(result.tile);
      result.least = std::min(result.least, n);
      result.most = std::max(result.most, n);
    }
  }
  return result;
}

// Whether the divisor, which all pairs share, is 0.
bool divides_by_zero(const TileIndex& a, const TileIndex& b) {
  const bool zero = b.least == 0;
  if (zero) tile_of(a, b)->faulty = true;
  return zero;
}

int64_t floor_quotient(int64_t a, int64_t b) {
  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

int64_t floor_remainder(int64_t a, int64_t b) {
  const int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

const CapturedView& view_of(const void* owner, const TileArguments& arguments) {
  const CapturedView* view = arguments.tile->captured;
  while (view->owner != owner) ++view;
  return *view;
}

// The view, or nothing if an index may be beyond it.
const CapturedView* view_in_range(const void* owner, const TileArguments& arguments) {
  const auto& view = view_of(owner, arguments);
  for (size_t d = 0; d < static_cast<size_t>(view.rank); ++d) {
    if (arguments.least[d] >= 0 && arguments.most[d] < view.sizes[d]) continue;
    arguments.tile->faulty = true;
    return nullptr;
  }
  return &view;
}

// Widens a range by the numbers of a lookup whose first `d` indices led to `numbers`.
void widen(TileIndex& range, const CapturedView& view, const TileArguments& arguments, int d,
           const int32_t* numbers) {
  if (d == view.rank) {
    range.least = std::min<int64_t>(range.least, *numbers);
    range.most = std::max<int64_t>(range.most, *numbers);
    return;
  }
  const auto dimension = static_cast<size_t>(d);
  for (int64_t i = arguments.least[dimension]; i <= arguments.most[dimension]; ++i)
    widen(range, view, arguments, d + 1, numbers + i * view.strides[dimension]);
}

}  // namespace

TileMask operator&(const TileMask& a, const TileMask& b) {
  return {a.may_hold && b.may_hold, a.may_fail || b.may_fail};
}
TileMask operator|(const TileMask& a, const TileMask& b) {
  return {a.may_hold || b.may_hold, a.may_fail && b.may_fail};
}
TileMask operator^(const TileMask& a, const TileMask& b) {
  return (a & !b) | (b & !a);
}
TileMask operator!(const TileMask& a) {
  return {a.may_fail, a.may_hold};
}

TileIndex operator+(const TileIndex& a, const TileIndex& b) {
  return of_ends(a, b, [](int64_t x, int64_t y, int64_t* n) { return __builtin_add_overflow(x, y, n); });
}
TileIndex operator-(const TileIndex& a, const TileIndex& b) {
  return of_ends(a, b, [](int64_t x, int64_t y, int64_t* n) { return __builtin_sub_overflow(x, y, n); });
}
TileIndex operator*(const TileIndex& a, const TileIndex& b) {
  return of_ends(a, b, [](int64_t x, int64_t y, int64_t* n) { return __builtin_mul_overflow(x, y, n); });
}
TileIndex operator/(const TileIndex& a, const TileIndex& b) {
  if (divides_by_zero(a, b)) return anything(tile_of(a, b));
  return of_ends(a, b, [](int64_t x, int64_t y, int64_t* n) {
    const bool beyond = x == kLeast && y == -1;
    *n = beyond ? 0 : floor_quotient(x, y);
    return beyond;
  });
}
TileIndex operator%(const TileIndex& a, const TileIndex& b) {
  TileEvaluation* const tile = tile_of(a, b);
  if (divides_by_zero(a, b)) return anything(tile);
  const int64_t by = b.least;
  if (by == -1) return {0, 0, tile};  // the quotient could be beyond int64
  if (floor_quotient(a.least, by) == floor_quotient(a.most, by))
    return {floor_remainder(a.least, by), floor_remainder(a.most, by), tile};
  return by > 0 ? TileIndex(0, by - 1, tile) : TileIndex(by + 1, 0, tile);
}
TileIndex operator-(const TileIndex& a) {
  return 0 - a;
}
TileIndex operator+(const TileIndex& a) {
  return a;
}

TileMask operator<(const TileIndex& a, const TileIndex& b) {
  return {a.least < b.most, a.most >= b.least};
}
TileMask operator<=(const TileIndex& a, const TileIndex& b) {
  return !(b < a);
}
TileMask operator>(const TileIndex& a, const TileIndex& b) {
  return b < a;
}
TileMask operator>=(const TileIndex& a, const TileIndex& b) {
  return !(a < b);
}
TileMask operator==(const TileIndex& a, const TileIndex& b) {
  return (a <= b) & (b <= a);
}
TileMask operator!=(const TileIndex& a, const TileIndex& b) {
  return !(a == b);
}

TileIndex abs(const TileIndex& a) {
  return max(a, -a);
}
TileIndex min(const TileIndex& a, const TileIndex& b) {
  return {std::min(a.least, b.least), std::min(a.most, b.most), tile_of(a, b)};
}
TileIndex max(const TileIndex& a, const TileIndex& b) {
  return {std::max(a.least, b.least), std::max(a.most, b.most), tile_of(a, b)};
}
TileIndex floor(const TileIndex& a) {
  return a;
}
TileIndex where(const TileMask& condition, const TileIndex& yes, const TileIndex& no) {
  TileEvaluation* const tile = tile_of(yes, no);
  if (!condition.may_fail) return {yes.least, yes.most, tile};
  if (!condition.may_hold) return {no.least, no.most, tile};
  return {std::min(yes.least, no.least), std::max(yes.most, no.most), tile};
}

TileNumber look_up_numbers(const void* owner, const TileArguments& arguments) {
  view_in_range(owner, arguments);
  return {};
}

TileIndex look_up_indices(const void* owner, const TileArguments& arguments) {
  const CapturedView* const view = view_in_range(owner, arguments);
  if (!view) return anything(arguments.tile);
  int64_t count = 1;
  for (size_t d = 0; d < static_cast<size_t>(view->rank); ++d)
    count *= arguments.most[d] - arguments.least[d] + 1;
  // Reading many more numbers than a tile has rows costs as much as the pairs, which then decide.
  constexpr int64_t kMostNumbers = BlockClasses::kSize * 8;
  if (count > kMostNumbers) return anything(arguments.tile);
  TileIndex result(kMost, kLeast, arguments.tile);
  widen(result, *view, arguments, 0, static_cast<const int32_t*>(view->numbers));
  return result;
}

}  // namespace attentive::detail
