#ifndef ATTENTIVE_SCORE_LOOKUPS_H
#define ATTENTIVE_SCORE_LOOKUPS_H

// Lookups of captured tensors by the places of the pairs of a vector.

#include <attentive/score/vectors/places.h>

ATTENTIVE_SIMD_BEGIN

using detail::CapturedView;

inline const CapturedView& view_of(const PairRow& row, const void* owner) {
  const CapturedView* view = row.captured;
  if (view->owner == owner) [[likely]]  // the compiler moves no loop out of another one
    return *view;
  do ++view;
  while (view->owner != owner);
  return *view;
}

/// Which pairs of the vector are in the row's range.
inline Int in_range(const PairRow& row) {
  const Int at = lanes() + static_cast<int32_t>(row.column);
  return (at >= static_cast<int32_t>(row.lo)) & (at < static_cast<int32_t>(row.hi));
}

/// Reports the first index of the vector that is beyond its dimension.
inline void report(PairRow& row, const CapturedView& view, int dimension, Int index, Int beyond) {
  if (row.bad) return;
  for (int i = 0; i < kWidth; ++i) {
    if (beyond[i] == 0) continue;
    row.bad = &view;
    row.bad_dimension = dimension;
    row.bad_index = index[i];
    row.bad_column = row.column + i;
    return;
  }
}

/// The offsets of the numbers that a vector of pairs looks up: `base` for all, plus one per pair.
struct Offsets {
  int64_t base;
  Int lanes;
};

/// Adds one index of a lookup. An index beyond the tensor is reported and taken as 0.
template <class I>
inline void add_index(const I& i, const CapturedView& view, PairRow& row, int dimension, Offsets& to) {
  const int64_t size = view.sizes[static_cast<size_t>(dimension)],
                stride = view.strides[static_cast<size_t>(dimension)];
  if constexpr (kUniform<I>) {
    const int64_t n = number(i);
    if (n >= 0 && n < size) [[likely]] {
      to.base += n * stride;
      return;
    }
    report(row, view, dimension, ints(n), in_range(row));
  } else {
    const Int index = ints(i);
    const Int beyond = (index < 0) | (index >= static_cast<int32_t>(size));
    const Int used = beyond & in_range(row);
    report(row, view, dimension, index, used);
    to.lanes += (beyond ? all(int32_t{0}) : index) * static_cast<int32_t>(stride);
  }
}

template <class V, class T>
inline V gather(const T* numbers, Int offsets) {
#if ATTENTIVE_SIMD_IS_AVX512
  return (V)_mm512_mask_i32gather_epi32(__m512i{}, kEveryLane, (__m512i)offsets, numbers, 4);
#elif ATTENTIVE_SIMD_IS_AVX2
  return (V)_mm256_i32gather_epi32(reinterpret_cast<const int*>(numbers), (__m256i)offsets, 4);
#else
  V v;
  for (int i = 0; i < kWidth; ++i) v[i] = numbers[offsets[i]];
  return v;
#endif
}

/// Adds one index of a lookup of neighbouring numbers; `whole` becomes false if they are not, or not all
/// exist. Of numbers in falling order, the base is the last one.
template <class I>
inline void add_neighbours(const I& i, const CapturedView& view, int dimension, int64_t& base, bool& whole) {
  const int64_t size = view.sizes[static_cast<size_t>(dimension)],
                stride = view.strides[static_cast<size_t>(dimension)];
  const int64_t least = number(i) - (kDescending<I> ? kWidth - 1 : 0),
                most = kAscending<I> ? least + kWidth - 1 : number(i);
  whole = whole && least >= 0 && most < size && (kUniform<I> || stride == 1);
  base += least * stride;
}

/// The numbers of a lookup as vectors of type V of numbers of type T, and their offsets.
template <class V, class T, class... I>
inline V look_up(const void* owner, PairRow& row, Offsets& at, const I&... indices) {
  const CapturedView& view = view_of(row, owner);
  const auto* const numbers = static_cast<const T*>(view.numbers);
  constexpr int kAscents = (0 + ... + static_cast<int>(kAscending<I>));
  constexpr int kDescents = (0 + ... + static_cast<int>(kDescending<I>));
  constexpr int kConstants = (0 + ... + static_cast<int>(kUniform<I>));
  at = {0, all(int32_t{0})};
  if constexpr (kAscents + kDescents == 1 && kConstants + 1 == static_cast<int>(sizeof...(I))) {
    // Neighbouring numbers, if all of them exist.
    int dimension = 0;
    int64_t base = 0;
    bool whole = true;
    (add_neighbours(indices, view, dimension++, base, whole), ...);
    if (whole) [[likely]] {
      at = {base, kAscents == 1 ? lanes() : kWidth - 1 - lanes()};
      const V found = load<V>(numbers + base);
      return kAscents == 1 ? found : reversed(found);
    }
  }
  int dimension = 0;
  (add_index(indices, view, row, dimension++, at), ...);
  if constexpr (kConstants == static_cast<int>(sizeof...(I))) {
    return numbers[at.base] - V{};
  } else {
    return gather<V>(numbers + at.base, at.lanes);
  }
}

/// The first index among the arguments of a lookup; `at` in their place stands for one.
template <class First, class... Rest>
inline auto any_index(const First& first, const Rest&... rest) {
  if constexpr (kIsPlaces<First>) {
    return first.batch;
  } else if constexpr (Index<First>) {
    return first;
  } else {
    static_assert(sizeof...(Rest) > 0,
                  "a lookup in a captured tensor takes an index of `at`, or `at` itself before its numbers");
    return any_index(rest...);
  }
}

template <class V, class T, class First, class... Rest>
inline V look_up_arguments(const void* owner, PairRow& row, Offsets& at, const First& first,
                           const Rest&... rest) {
  if constexpr (kIsPlaces<First>) {
    return look_up<V, T>(owner, row, at, rest...);
  } else {
    return look_up<V, T>(owner, row, at, first, rest...);
  }
}

/// A lookup of numbers, with their derivatives if the row asks for them.
template <class... I>
inline auto look_up_numbers(const void* owner, const I&... indices) {
  const auto any = any_index(indices...);
  PairRow& row = *any.row;
  Offsets at;
  const Vec found = look_up_arguments<Vec, float>(owner, row, at, indices...);
  if constexpr (IndexTraits<std::remove_cvref_t<decltype(any)>>::dual) {
    const bool seeded = row.lookup++ == row.seed;
    if (seeded) {
      row.seeded = &view_of(row, owner);
      row.seeded_base = at.base;
      store(row.seeded_offsets.data(), at.lanes);
    }
    return Dual{lanes_of(found), lanes_of(all(seeded ? 1.0f : 0.0f))};
  } else {
    return lanes_of(found);
  }
}

/// A lookup of indices.
template <class... I>
inline auto look_up_indices(const void* owner, const I&... indices) {
  const auto any = any_index(indices...);
  PairRow& row = *any.row;
  Offsets at;
  Varying<IndexTraits<std::remove_cvref_t<decltype(any)>>::dual> result;
  store(result.x, look_up_arguments<Int, int32_t>(owner, row, at, indices...));
  result.row = &row;
  return result;
}

ATTENTIVE_SIMD_END

#endif
