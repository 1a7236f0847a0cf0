#ifndef ATTENTIVE_SCORE_LANES_H
#define ATTENTIVE_SCORE_LANES_H

// Numbers of a vector of pairs, as a score function sees them: values, values with a derivative, conditions;
// and the functions that it calls on them.
// They are held in memory and not in a vector type, because the body of the function is compiled for the
// plain instruction set until it is inlined into a row's loop.

#include <concepts>
#include <type_traits>

#include <attentive/score/score_callbacks.h>
#include <attentive/score/vectors/math.h>

ATTENTIVE_SIMD_BEGIN

/// A number per pair.
struct Lanes {
  float x[kWidth];
};

/// A condition per pair: all bits set, or none.
struct LaneMask {
  int32_t x[kWidth];

  template <class T>
  requires std::same_as<T, bool>
  operator T() const { return detail::no_bool<T>(); }
};

inline Vec vec(const Lanes& a) {
  return load<Vec>(a.x);
}
inline Lanes lanes_of(Vec v) {
  Lanes a;
  store(a.x, v);
  return a;
}
inline Int bits(const LaneMask& a) {
  return load<Int>(a.x);
}
inline LaneMask mask_of(Int v) {
  LaneMask a;
  store(a.x, v);
  return a;
}

inline LaneMask operator&(const LaneMask& a, const LaneMask& b) {
  return mask_of(bits(a) & bits(b));
}
inline LaneMask operator|(const LaneMask& a, const LaneMask& b) {
  return mask_of(bits(a) | bits(b));
}
inline LaneMask operator^(const LaneMask& a, const LaneMask& b) {
  return mask_of(bits(a) ^ bits(b));
}
inline LaneMask operator!(const LaneMask& a) {
  return mask_of(~bits(a));
}

/// The derivative of a number per pair. Where the number is not live, it is a constant: it does not depend on
/// what the derivative is by, or `where` hides what does. Its derivative there is 0, and stays 0 whatever it
/// is multiplied by, while 0 times an infinite derivative of a live number is NaN, as in PyTorch.
struct Slope {
  Lanes x;
  LaneMask live;
};
/// That of numbers that are constants by their type.
struct NoSlope {};

/// A number per pair with its derivative.
struct Dual {
  Lanes value;
  Slope slope;
};

/// Index types say so here (places.h).
template <class T>
inline constexpr bool kIsIndex = false;
template <class T>
concept Index = kIsIndex<T>;
template <class T>
concept Plain = std::is_arithmetic_v<T>;
template <class T>
concept Number = std::same_as<T, Lanes> || std::same_as<T, Dual>;
/// Everything that can be a number per pair.
template <class T>
concept Term = Plain<T> || Number<T> || Index<T>;
/// A pair of operands whose result is a number per pair and not an index.
template <class A, class B>
concept NumberOperands = Term<A> && Term<B> &&
    !(Plain<A> && Plain<B>)&&(Number<A> || Number<B> || std::floating_point<A> || std::floating_point<B>);

inline Lanes value(const Lanes& x) {
  return x;
}
inline Lanes value(const Dual& x) {
  return x.value;
}
template <Plain T>
inline Lanes value(T x) {
  return lanes_of(all(static_cast<float>(x)));
}

template <class T>
inline constexpr bool kIsDual = std::is_same_v<T, Dual>;

inline Lanes add(const Lanes& a, const Lanes& b) {
  return lanes_of(vec(a) + vec(b));
}
inline Lanes subtract(const Lanes& a, const Lanes& b) {
  return lanes_of(vec(a) - vec(b));
}
inline Lanes multiply(const Lanes& a, const Lanes& b) {
  return lanes_of(rounded(vec(a) * vec(b)));
}
inline Lanes divide(const Lanes& a, const Lanes& b) {
  return lanes_of(vec(a) / vec(b));
}
/// A quotient by a number that all pairs share, which costs a product if the inverse is a normal number.
template <Plain T>
inline Lanes divide(const Lanes& a, T by) {
  const float divisor = static_cast<float>(by), size = __builtin_fabsf(divisor);
  if (size > 1e-37f && size < 1e37f) return multiply(a, lanes_of(all(1.0f / divisor)));
  return divide(a, lanes_of(all(divisor)));
}
inline Lanes negative(const Lanes& a) {
  return lanes_of(-vec(a));
}
inline Lanes choose(Int condition, const Lanes& yes, const Lanes& no) {
  return lanes_of(select(condition, vec(yes), vec(no)));
}

inline Slope slope_of(Vec x, Int live) {
  return {lanes_of((Vec)((Int)x & live)), mask_of(live)};
}
template <class T>
inline auto slope(const T& x) {
  if constexpr (kIsDual<T>) {
    return x.slope;
  } else {
    return NoSlope{};
  }
}
template <class T>
inline auto with_slope(const Lanes& number, const T& d) {
  if constexpr (std::is_same_v<T, Slope>) {
    return Dual{number, d};
  } else {
    return number;
  }
}

inline Slope operator+(const Slope& a, const Slope& b) {
  return {add(a.x, b.x), a.live | b.live};
}
inline Slope operator*(const Slope& a, Vec derivative) {
  return slope_of(rounded(vec(a.x) * derivative), bits(a.live));
}
inline Slope operator/(const Slope& a, Vec by) {
  return slope_of(vec(a.x) / by, bits(a.live));
}
template <Plain T>
inline Slope operator/(const Slope& a, T by) {
  return slope_of(vec(divide(a.x, by)), bits(a.live));
}
inline Slope operator-(const Slope& a) {
  return {negative(a.x), a.live};
}
inline Slope choose(Int condition, const Slope& yes, const Slope& no) {
  return {choose(condition, yes.x, no.x), mask_of(condition ? bits(yes.live) : bits(no.live))};
}
inline Slope choose(Int condition, const Slope& yes, NoSlope) {
  return slope_of(vec(yes.x), condition & bits(yes.live));
}
inline Slope choose(Int condition, NoSlope, const Slope& no) {
  return slope_of(vec(no.x), ~condition & bits(no.live));
}
/// After a function that does not change with its operand: 0, but NaN if the slope is no finite number.
inline Slope stopped(const Slope& a) {
  const Vec rest = vec(a.x) - vec(a.x);  // NOLINT(misc-redundant-expression): 0, or NaN
  return {lanes_of(rest), mask_of(is_nan(rest))};
}

inline Slope operator+(const Slope& a, NoSlope) {
  return a;
}
inline Slope operator+(NoSlope, const Slope& b) {
  return b;
}
inline NoSlope operator+(NoSlope, NoSlope) {
  return {};
}
template <class T>
inline NoSlope operator*(NoSlope, const T&) {
  return {};
}
template <class T>
inline NoSlope operator/(NoSlope, const T&) {
  return {};
}
inline NoSlope operator-(NoSlope) {
  return {};
}
inline NoSlope choose(Int, NoSlope, NoSlope) {
  return {};
}
inline NoSlope stopped(NoSlope) {
  return {};
}

template <class A, class B>
requires NumberOperands<A, B>
inline auto operator+(const A& a, const B& b) {
  return with_slope(add(value(a), value(b)), slope(a) + slope(b));
}

template <class A, class B>
requires NumberOperands<A, B>
inline auto operator-(const A& a, const B& b) {
  return with_slope(subtract(value(a), value(b)), slope(a) + -slope(b));
}

template <class A, class B>
requires NumberOperands<A, B>
inline auto operator*(const A& a, const B& b) {
  const Lanes x = value(a), y = value(b);
  return with_slope(multiply(x, y), slope(a) * vec(y) + slope(b) * vec(x));
}

template <class A, Plain B>
requires NumberOperands<A, B>
inline auto operator/(const A& a, const B& by) {
  return with_slope(divide(value(a), by), slope(a) / by);
}

template <class A, class B>
requires NumberOperands<A, B>
inline auto operator/(const A& a, const B& b) {
  const Lanes y = value(b), quotient = divide(value(a), y);
  return with_slope(quotient, (slope(a) + -(slope(b) * vec(quotient))) / vec(y));
}

template <Number A>
inline A operator-(const A& a) {
  return with_slope(negative(value(a)), -slope(a));
}
template <Number A>
inline A operator+(const A& a) {
  return a;
}

#define ATTENTIVE_COMPARE(OP)                           \
  template <class A, class B>                           \
  requires NumberOperands<A, B>                         \
  inline LaneMask operator OP(const A& a, const B& b) { \
    return mask_of(vec(value(a)) OP vec(value(b)));     \
  }
ATTENTIVE_COMPARISONS(ATTENTIVE_COMPARE)
#undef ATTENTIVE_COMPARE

// Each function of one number: its value y at x, and the slope of its result for the slope of `a`, which is
// PyTorch's where the function has a corner. (A lambda would not have the target attribute of its
// function.)
#define ATTENTIVE_LANE_FUNCTION(NAME, VALUE, SLOPE)          \
  template <Number A>                                        \
  inline A NAME(const A& a) {                                \
    [[maybe_unused]] const Vec x = vec(value(a)), y = VALUE; \
    if constexpr (kIsDual<A>) {                              \
      return {lanes_of(y), SLOPE};                           \
    } else {                                                 \
      return lanes_of(y);                                    \
    }                                                        \
  }
ATTENTIVE_LANE_FUNCTION(exp, exp_of(x), a.slope* y)
ATTENTIVE_LANE_FUNCTION(log, log_of(x), a.slope / x)
ATTENTIVE_LANE_FUNCTION(tanh, tanh(x), a.slope*(1.0f - y * y))
ATTENTIVE_LANE_FUNCTION(sqrt, sqrt_of(x), a.slope / (2.0f * y))
ATTENTIVE_LANE_FUNCTION(rsqrt, 1.0f / sqrt_of(x), a.slope*(-0.5f * y * y * y))
/// The derivative at 0 is 0.
ATTENTIVE_LANE_FUNCTION(abs, magnitude(x),
                        a.slope* select(x > all(0.0f), all(1.0f),
                                        select(x < all(0.0f), all(-1.0f), all(0.0f))))
ATTENTIVE_LANE_FUNCTION(sigmoid, sigmoid_of(x), a.slope*(y*(1.0f - y)))
ATTENTIVE_LANE_FUNCTION(softplus, softplus_of(x), a.slope* sigmoid_of(x))
ATTENTIVE_LANE_FUNCTION(sin, sine_of(x, 0), a.slope* sine_of(x, 1))
ATTENTIVE_LANE_FUNCTION(cos, sine_of(x, 1), a.slope * -sine_of(x, 0))
/// The derivative is 0 everywhere.
ATTENTIVE_LANE_FUNCTION(floor, floor_of(x), stopped(a.slope))
#undef ATTENTIVE_LANE_FUNCTION

// Indices are numbers to these functions.
#define ATTENTIVE_OF_INDEX(function)  \
  template <Index I>                  \
  inline Lanes function(const I& i) { \
    return function(value(i));        \
  }
ATTENTIVE_SCORE_FUNCTIONS(ATTENTIVE_OF_INDEX)
#undef ATTENTIVE_OF_INDEX
template <Index I>
inline I floor(const I& i) {
  return i;
}

template <class S>
inline auto slope_by_base(const S& d, Vec x, Vec y) {
  if constexpr (std::is_same_v<S, Slope>) {
    return choose(y == all(0.0f), stopped(d), d * (y * pow_of(x, y, 1.0f)));
  } else {
    return d;
  }
}
template <class S>
inline auto slope_by_exponent(const S& d, Vec x, Vec y, Vec power) {
  if constexpr (std::is_same_v<S, Slope>) {
    return d * select((x == all(0.0f)) & (y >= all(0.0f)), all(0.0f), power * log_of(x));
  } else {
    return d;
  }
}
template <class A, class B>
requires NumberOperands<A, B>
inline auto pow(const A& a, const B& b) {
  const Vec x = vec(value(a)), y = vec(value(b)), power = pow_of(x, y);
  return with_slope(lanes_of(power),
                    slope_by_base(slope(a), x, y) + slope_by_exponent(slope(b), x, y, power));
}

/// Chooses between numbers per pair; the derivative is that of the chosen one.
template <class A, class B>
inline auto choose_number(Int condition, const A& yes, const B& no) {
  return with_slope(choose(condition, value(yes), value(no)), choose(condition, slope(yes), slope(no)));
}

/// The slope of the larger or smaller number: where both are equal, half of each.
template <class A, class B>
inline auto slope_of_winner(Int first, Int second, Int equal, const A& a, const B& b) {
  return (choose(second, stopped(a), a) + choose(first, stopped(b), b)) * select(equal, all(0.5f), all(1.0f));
}
/// The larger number, or NaN if either is NaN.
template <class A, class B>
requires NumberOperands<A, B>
inline auto max(const A& a, const B& b) {
  const Vec x = vec(value(a)), y = vec(value(b));
  return with_slope(choose((x > y) | is_nan(x), value(a), value(b)),
                    slope_of_winner(x > y, x < y, x == y, slope(a), slope(b)));
}
template <class A, class B>
requires NumberOperands<A, B>
inline auto min(const A& a, const B& b) {
  const Vec x = vec(value(a)), y = vec(value(b));
  return with_slope(choose((x < y) | is_nan(x), value(a), value(b)),
                    slope_of_winner(x<y, x> y, x == y, slope(a), slope(b)));
}

template <class A, class B>
requires NumberOperands<A, B> ||
    (Plain<A>&& Plain<B>)inline auto where(const LaneMask& condition, const A& yes, const B& no) {
  return choose_number(bits(condition), yes, no);
}

ATTENTIVE_SIMD_END

#endif
