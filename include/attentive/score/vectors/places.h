#ifndef ATTENTIVE_SCORE_PLACES_H
#define ATTENTIVE_SCORE_PLACES_H

// Places of the pairs of a vector: indices that are equal for all of them, that grow or fall by 1 from pair
// to pair, or that differ in any way. kDual: lookups of captured tensors by them have derivatives.

#include <attentive/score/pair_functions.h>
#include <attentive/score/vectors/lanes.h>

ATTENTIVE_SIMD_BEGIN

using detail::PairRow;

template <bool kDual>
struct Uniform {
  int64_t n;
  PairRow* row;
};
/// A number of queries or keys, whose logarithm is known.
template <bool kDual>
struct Length : Uniform<kDual> {
  float log;
};
template <bool kDual>
struct Ascending {
  int64_t first;
  PairRow* row;
};
template <bool kDual>
struct Descending {
  int64_t first;
  PairRow* row;
};
template <bool kDual>
struct Varying {
  int32_t x[kWidth];
  PairRow* row;
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
template <class T>
struct IndexTraits {
  static constexpr bool uniform = true, ascending = false, descending = false;
};
template <bool kDualIndex>
struct IndexTraits<Uniform<kDualIndex>> {
  static constexpr bool dual = kDualIndex, uniform = true, ascending = false, descending = false;
};
template <bool kDualIndex>
struct IndexTraits<Length<kDualIndex>> : IndexTraits<Uniform<kDualIndex>> {};
template <bool kDualIndex>
struct IndexTraits<Ascending<kDualIndex>> {
  static constexpr bool dual = kDualIndex, uniform = false, ascending = true, descending = false;
};
template <bool kDualIndex>
struct IndexTraits<Descending<kDualIndex>> {
  static constexpr bool dual = kDualIndex, uniform = false, ascending = false, descending = true;
};
template <bool kDualIndex>
struct IndexTraits<Varying<kDualIndex>> {
  static constexpr bool dual = kDualIndex, uniform = false, ascending = false, descending = false;
};

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
inline PairRow* row_of(const A& a, const B& b) {
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

template <class A, class B>
requires IndexOperands<A, B>
inline LaneMask operator<(const A& a, const B& b) {
  return mask_of(ints(a) < ints(b));
}
template <class A, class B>
requires IndexOperands<A, B>
inline LaneMask operator<=(const A& a, const B& b) {
  return mask_of(ints(a) <= ints(b));
}
template <class A, class B>
requires IndexOperands<A, B>
inline LaneMask operator>(const A& a, const B& b) {
  return mask_of(ints(a) > ints(b));
}
template <class A, class B>
requires IndexOperands<A, B>
inline LaneMask operator>=(const A& a, const B& b) {
  return mask_of(ints(a) >= ints(b));
}
template <class A, class B>
requires IndexOperands<A, B>
inline LaneMask operator==(const A& a, const B& b) {
  return mask_of(ints(a) == ints(b));
}
template <class A, class B>
requires IndexOperands<A, B>
inline LaneMask operator!=(const A& a, const B& b) {
  return mask_of(ints(a) != ints(b));
}

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

ATTENTIVE_SIMD_END

#endif
