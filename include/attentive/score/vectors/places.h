#ifndef ATTENTIVE_SCORE_PLACES_H
#define ATTENTIVE_SCORE_PLACES_H

// Places of the pairs of a vector, and lookups of captured tensors by them. Places are indices that are
// equal for all of them, that grow or fall by 1 from pair to pair, or that differ in any way. kDual: lookups
// of captured tensors by them have derivatives.

#include <attentive/score/score_callbacks.h>
#include <attentive/score/vectors/dual_numbers.h>

ATTENTIVE_SIMD_BEGIN

using detail::CallbackRow;

template <bool kDual>
struct Uniform {
  int64_t n;
  CallbackRow* row;
};
/// A number of queries or keys, whose logarithm is known.
template <bool kDual>
struct Length : Uniform<kDual> {
  float log;
};
template <bool kDual>
struct Ascending {
  int64_t first;
  CallbackRow* row;
};
template <bool kDual>
struct Descending {
  int64_t first;
  CallbackRow* row;
};
template <bool kDual>
struct Varying {
  int32_t x[kWidth];
  CallbackRow* row;
};

template <bool kDual>
inline constexpr bool kIsIndex<Uniform<kDual>> = true;
template <bool kDual>
inline constexpr bool kIsIndex<Length<kDual>> = true;
template <bool kDual>
inline constexpr bool kIsIndex<Ascending<kDual>> = true;
template <bool kDual>
inline constexpr bool kIsIndex<Descending<kDual>> = true;
template <bool kDual>
inline constexpr bool kIsIndex<Varying<kDual>> = true;

/// The properties of an index type that the templates below ask for; an integer is an index, too.
template <bool kUniformIndex, int kStep, bool kDualIndex = false>
struct IndexKind {
  static constexpr bool dual = kDualIndex, uniform = kUniformIndex, ascending = kStep > 0,
                        descending = kStep < 0;
};
template <class T>
struct IndexTraits : IndexKind<true, 0> {};
template <bool kDual>
struct IndexTraits<Uniform<kDual>> : IndexKind<true, 0, kDual> {};
template <bool kDual>
struct IndexTraits<Length<kDual>> : IndexKind<true, 0, kDual> {};
template <bool kDual>
struct IndexTraits<Ascending<kDual>> : IndexKind<false, 1, kDual> {};
template <bool kDual>
struct IndexTraits<Descending<kDual>> : IndexKind<false, -1, kDual> {};
template <bool kDual>
struct IndexTraits<Varying<kDual>> : IndexKind<false, 0, kDual> {};

template <class T>
inline constexpr bool kUniform = IndexTraits<T>::uniform;
template <class T>
inline constexpr bool kAscending = IndexTraits<T>::ascending;
template <class T>
inline constexpr bool kDescending = IndexTraits<T>::descending;

/// Operands whose result is an index.
template <class A, class B>
concept IndexOperands = (Index<A> && (Index<B> || std::integral<B>)) || (std::integral<A> && Index<B>);

template <std::integral T>
inline int64_t number(T n) {
  return static_cast<int64_t>(n);
}
template <bool kDual>
inline int64_t number(const Uniform<kDual>& i) {
  return i.n;
}
template <bool kDual>
inline int64_t number(const Ascending<kDual>& i) {
  return i.first;
}
template <bool kDual>
inline int64_t number(const Descending<kDual>& i) {
  return i.first;
}

/// The nearest number of a range; without one, of int32: "no limit" may be the largest int64.
inline int32_t nearest_int(int64_t n, int64_t least = INT32_MIN, int64_t most = INT32_MAX) {
  return static_cast<int32_t>(n < least ? least : n > most ? most : n);
}

template <std::integral T>
inline Int ints(T n) {
  return all(nearest_int(number(n)));
}
template <bool kDual>
inline Int ints(const Uniform<kDual>& i) {
  return all(nearest_int(i.n));
}
template <bool kDual>
inline Int ints(const Ascending<kDual>& i) {
  return all(nearest_int(i.first, INT32_MIN, INT32_MAX - (kWidth - 1))) + lanes();
}
template <bool kDual>
inline Int ints(const Descending<kDual>& i) {
  return all(nearest_int(i.first, INT32_MIN + (kWidth - 1), INT32_MAX)) - lanes();
}
template <bool kDual>
inline Int ints(const Varying<kDual>& i) {
  return load<Int>(i.x);
}

template <Index I>
inline Lanes value(const I& i) {
  return lanes_of(__builtin_convertvector(ints(i), Vec));
}
/// A number that all pairs share may be beyond int32.
template <Index I>
requires kUniform<I>
inline Lanes value(const I& i) {
  return lanes_of(all(static_cast<float>(i.n)));
}
template <bool kDual>
inline Lanes log(const Length<kDual>& i) {
  return lanes_of(all(i.log));
}

template <class A, class B>
inline CallbackRow* row_of(const A& a, const B& b) {
  if constexpr (Index<A>) {
    return a.row;
  } else {
    return b.row;
  }
}
template <class A, class B>
inline constexpr bool dual_of() {
  if constexpr (Index<A>) {
    return IndexTraits<A>::dual;
  } else {
    return IndexTraits<B>::dual;
  }
}
template <class A, class B>
inline auto varying(Int x, const A& a, const B& b) {
  Varying<dual_of<A, B>()> result;
  store(result.x, x);
  result.row = row_of(a, b);
  return result;
}

template <class A, class B>
requires IndexOperands<A, B>
inline auto operator+(const A& a, const B& b) {
  constexpr bool kDual = dual_of<A, B>();
  if constexpr (kUniform<A> && kUniform<B>) {
    return Uniform<kDual>{number(a) + number(b), row_of(a, b)};
  } else if constexpr ((kAscending<A> && kUniform<B>) || (kUniform<A> && kAscending<B>)) {
    return Ascending<kDual>{number(a) + number(b), row_of(a, b)};
  } else if constexpr ((kDescending<A> && kUniform<B>) || (kUniform<A> && kDescending<B>)) {
    return Descending<kDual>{number(a) + number(b), row_of(a, b)};
  } else {
    return varying(ints(a) + ints(b), a, b);
  }
}

template <class A, class B>
requires IndexOperands<A, B>
inline auto operator-(const A& a, const B& b) {
  constexpr bool kDual = dual_of<A, B>();
  if constexpr (kUniform<A> && kUniform<B>) {
    return Uniform<kDual>{number(a) - number(b), row_of(a, b)};
  } else if constexpr ((kAscending<A> && kUniform<B>) || (kUniform<A> && kDescending<B>)) {
    return Ascending<kDual>{number(a) - number(b), row_of(a, b)};
  } else if constexpr ((kDescending<A> && kUniform<B>) || (kUniform<A> && kAscending<B>)) {
    return Descending<kDual>{number(a) - number(b), row_of(a, b)};
  } else {
    return varying(ints(a) - ints(b), a, b);
  }
}

template <class A, class B>
requires IndexOperands<A, B>
inline auto operator*(const A& a, const B& b) {
  if constexpr (kUniform<A> && kUniform<B>) {
    return Uniform<dual_of<A, B>()>{number(a) * number(b), row_of(a, b)};
  } else {
    return varying(ints(a) * ints(b), a, b);
  }
}

template <Index I>
inline auto operator-(const I& i) {
  return 0 - i;
}
template <Index I>
inline I operator+(const I& i) {
  return i;
}

/// The quotient, rounded down. Each rounded quotient of floats leaves a rest that is 2^24 times smaller, so
/// the second one is exact but for 1.
inline Int rounded_quotient(Int x, float inverse) {
  return __builtin_convertvector(floor_of(__builtin_convertvector(x, Vec) * inverse), Int);
}
inline Int floor_quotient(Int x, int32_t by) {
  const float inverse = 1.0f / static_cast<float>(by);
  Int quotient = rounded_quotient(x, inverse);
  quotient += rounded_quotient(x - quotient * by, inverse);
  const Int rest = x - quotient * by;
  const Int beyond = by > 0 ? rest >= by : rest <= by, before = by > 0 ? rest < 0 : rest > 0;
  return quotient - beyond + before;  // a true condition is -1
}

template <class A, class B>
inline auto floor_divided(const A& a, const B& b) {
  const int64_t by = number(b);
  if (by == 0) row_of(a, b)->divided_by_zero = true;
  if constexpr (kUniform<A>) {
    const int64_t n = number(a), cut = by == 0 ? 0 : n / by;
    return Uniform<dual_of<A, B>()>{by != 0 && n % by != 0 && (n < 0) != (by < 0) ? cut - 1 : cut,
                                    row_of(a, b)};
  } else {
    const Int x = ints(a);
    if (by == 0) return varying(all(int32_t{0}), a, b);
    if (by != nearest_int(by)) return varying(by > 0 ? x < 0 : x > 0, a, b);  // 0 or -1
    return varying(floor_quotient(x, static_cast<int32_t>(by)), a, b);
  }
}

/// Division and remainder round down: -1 / 4 is -1, and -1 % 4 is 3. The row reports a divisor of 0.
template <class A, class B>
requires IndexOperands<A, B>
inline auto operator/(const A& a, const B& b) {
  static_assert(kUniform<B>, "an index is divided by a number that is the same for all pairs, such as 16");
  if constexpr (kUniform<B>) {
    return floor_divided(a, b);
  } else {
    return varying(ints(a), a, b);  // so that there is one error
  }
}
template <class A, class B>
requires IndexOperands<A, B>
inline auto operator%(const A& a, const B& b) {
  const auto quotient = a / b;
  if constexpr (kUniform<A> || !kUniform<B>) {
    return a - quotient * b;
  } else {
    // The lowest 32 bits of a divisor beyond int32 will do.
    return varying(ints(a) - ints(quotient) * static_cast<int32_t>(number(b)), a, b);
  }
}

#define ATTENTIVE_COMPARE(OP)                           \
  template <class A, class B>                           \
  requires IndexOperands<A, B>                          \
  inline LaneMask operator OP(const A& a, const B& b) { \
    return mask_of(ints(a) OP ints(b));                 \
  }
ATTENTIVE_COMPARISONS(ATTENTIVE_COMPARE)
#undef ATTENTIVE_COMPARE

template <Index I>
inline auto abs(const I& i) {
  const Int x = ints(i);
  return varying((x < 0) ? -x : x, i, i);
}
template <class A, class B>
requires IndexOperands<A, B>
inline auto min(const A& a, const B& b) {
  const Int x = ints(a), y = ints(b);
  return varying((x < y) ? x : y, a, b);
}
template <class A, class B>
requires IndexOperands<A, B>
inline auto max(const A& a, const B& b) {
  const Int x = ints(a), y = ints(b);
  return varying((x > y) ? x : y, a, b);
}
template <class A, class B>
requires IndexOperands<A, B>
inline auto where(const LaneMask& condition, const A& yes, const B& no) {
  return varying(bits(condition) ? ints(yes) : ints(no), yes, no);
}

/// The places of the pairs of one query and consecutive keys.
template <bool kDual>
struct PlacesOfKeys {
  Uniform<kDual> batch, head, query;
  Ascending<kDual> key;
  Length<kDual> queries, keys;
};
/// The places of the pairs of one key and consecutive queries.
template <bool kDual>
struct PlacesOfQueries {
  Uniform<kDual> batch, head;
  Ascending<kDual> query;
  Uniform<kDual> key;
  Length<kDual> queries, keys;
};

template <class T>
inline constexpr bool kIsPlaces = false;
template <bool kDual>
inline constexpr bool kIsPlaces<PlacesOfKeys<kDual>> = true;
template <bool kDual>
inline constexpr bool kIsPlaces<PlacesOfQueries<kDual>> = true;

using detail::CapturedView;

inline const CapturedView& view_of(const CallbackRow& row, const void* owner) {
  const CapturedView* view = row.captured;
  if (view->owner == owner) [[likely]]  // the compiler moves no loop out of another one
    return *view;
  do ++view;
  while (view->owner != owner);
  return *view;
}

/// Which pairs of the vector are in the row's range.
inline Int in_range(const CallbackRow& row) {
  const Int offset = lanes() + static_cast<int32_t>(row.column);
  return (offset >= static_cast<int32_t>(row.lo)) & (offset < static_cast<int32_t>(row.hi));
}

/// Reports the first index of the vector that is beyond its dimension.
inline void report(CallbackRow& row, const CapturedView& view, int dimension, Int index, Int beyond) {
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
inline void add_index(const I& i, const CapturedView& view, CallbackRow& row, int dimension, Offsets& to) {
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
inline V look_up(const void* owner, CallbackRow& row, Offsets& offsets, const I&... indices) {
  const CapturedView& view = view_of(row, owner);
  const auto* const numbers = static_cast<const T*>(view.numbers);
  constexpr int kAscents = (0 + ... + static_cast<int>(kAscending<I>));
  constexpr int kDescents = (0 + ... + static_cast<int>(kDescending<I>));
  constexpr int kConstants = (0 + ... + static_cast<int>(kUniform<I>));
  offsets = {0, all(int32_t{0})};
  if constexpr (kAscents + kDescents == 1 && kConstants + 1 == static_cast<int>(sizeof...(I))) {
    // Neighbouring numbers, if all of them exist.
    int dimension = 0;
    int64_t base = 0;
    bool whole = true;
    (add_neighbours(indices, view, dimension++, base, whole), ...);
    if (whole) [[likely]] {
      offsets = {base, kAscents == 1 ? lanes() : kWidth - 1 - lanes()};
      const V found = load<V>(numbers + base);
      return kAscents == 1 ? found : reversed(found);
    }
  }
  int dimension = 0;
  (add_index(indices, view, row, dimension++, offsets), ...);
  if constexpr (kConstants == static_cast<int>(sizeof...(I))) {
    return numbers[offsets.base] - V{};
  } else {
    return gather<V>(numbers + offsets.base, offsets.lanes);
  }
}

/// The first index among the arguments of a lookup; `pair` in their place stands for one.
template <class First, class... Rest>
inline auto any_index(const First& first, const Rest&... rest) {
  if constexpr (kIsPlaces<First>) {
    return first.batch;
  } else if constexpr (Index<First>) {
    return first;
  } else {
    static_assert(
        sizeof...(Rest) > 0,
        "a lookup in a captured tensor takes an index of `pair`, or `pair` itself before its numbers");
    return any_index(rest...);
  }
}

template <class V, class T, class First, class... Rest>
inline V look_up_arguments(const void* owner, CallbackRow& row, Offsets& offsets, const First& first,
                           const Rest&... rest) {
  if constexpr (kIsPlaces<First>) {
    return look_up<V, T>(owner, row, offsets, rest...);
  } else {
    return look_up<V, T>(owner, row, offsets, first, rest...);
  }
}

/// A lookup of numbers, with their derivatives if the row asks for them.
template <class... I>
inline auto look_up_numbers(const void* owner, const I&... indices) {
  const auto any = any_index(indices...);
  CallbackRow& row = *any.row;
  Offsets offsets;
  const Vec found = look_up_arguments<Vec, float>(owner, row, offsets, indices...);
  if constexpr (IndexTraits<std::remove_cvref_t<decltype(any)>>::dual) {
    const bool seeded = row.lookup++ == row.seed;
    if (seeded) {
      row.seeded = &view_of(row, owner);
      row.seeded_base = offsets.base;
      store(row.seeded_offsets.data(), offsets.lanes);
    }
    return Dual{lanes_of(found), slope_of(all(1.0f), all(seeded ? -1 : 0))};
  } else {
    return lanes_of(found);
  }
}

/// A lookup of indices.
template <class... I>
inline auto look_up_indices(const void* owner, const I&... indices) {
  const auto any = any_index(indices...);
  CallbackRow& row = *any.row;
  Offsets offsets;
  Varying<IndexTraits<std::remove_cvref_t<decltype(any)>>::dual> result;
  store(result.x, look_up_arguments<Int, int32_t>(owner, row, offsets, indices...));
  result.row = &row;
  return result;
}

ATTENTIVE_SIMD_END

#endif
