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

/// A number per pair with its derivative.
struct Dual {
  Lanes value, slope;
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
/// A derivative that is infinite somewhere, times a slope: 0 for a slope of 0, so that a pair where it is
/// infinite does not make NaN of derivatives by numbers on which it does not depend.
inline Lanes unless_constant(const Lanes& slope, const Lanes& derivative) {
  return choose(vec(slope) == all(0.0f), slope, derivative);
}
/// The derivative of a number; 0 if it has none.
template <class T>
inline Lanes slope(const T& x) {
  if constexpr (kIsDual<T>) {
    return x.slope;
  } else {
    return lanes_of(all(0.0f));
  }
}

template <class A, class B>
requires NumberOperands<A, B>
inline auto operator+(const A& a, const B& b) {
  const Lanes sum = add(value(a), value(b));
  if constexpr (kIsDual<A> && kIsDual<B>) {
    return Dual{sum, add(a.slope, b.slope)};
  } else if constexpr (kIsDual<A>) {
    return Dual{sum, a.slope};
  } else if constexpr (kIsDual<B>) {
    return Dual{sum, b.slope};
  } else {
    return sum;
  }
}

template <class A, class B>
requires NumberOperands<A, B>
inline auto operator-(const A& a, const B& b) {
  const Lanes difference = subtract(value(a), value(b));
  if constexpr (kIsDual<A> && kIsDual<B>) {
    return Dual{difference, subtract(a.slope, b.slope)};
  } else if constexpr (kIsDual<A>) {
    return Dual{difference, a.slope};
  } else if constexpr (kIsDual<B>) {
    return Dual{difference, negative(b.slope)};
  } else {
    return difference;
  }
}

template <class A, class B>
requires NumberOperands<A, B>
inline auto operator*(const A& a, const B& b) {
  const Lanes x = value(a), y = value(b), product = multiply(x, y);
  if constexpr (kIsDual<A> && kIsDual<B>) {
    return Dual{product, add(multiply(a.slope, y), multiply(x, b.slope))};
  } else if constexpr (kIsDual<A>) {
    return Dual{product, multiply(a.slope, y)};
  } else if constexpr (kIsDual<B>) {
    return Dual{product, multiply(x, b.slope)};
  } else {
    return product;
  }
}

template <class A, Plain B>
requires NumberOperands<A, B>
inline auto operator/(const A& a, const B& by) {
  const Lanes quotient = divide(value(a), by);
  if constexpr (kIsDual<A>) {
    return Dual{quotient, unless_constant(a.slope, divide(a.slope, by))};
  } else {
    return quotient;
  }
}

template <class A, class B>
requires NumberOperands<A, B>
inline auto operator/(const A& a, const B& b) {
  const Lanes x = value(a), y = value(b), quotient = divide(x, y);
  if constexpr (kIsDual<A> && kIsDual<B>) {
    const Lanes difference = subtract(a.slope, unless_constant(b.slope, multiply(quotient, b.slope)));
    return Dual{quotient, unless_constant(difference, divide(difference, y))};
  } else if constexpr (kIsDual<A>) {
    return Dual{quotient, unless_constant(a.slope, divide(a.slope, y))};
  } else if constexpr (kIsDual<B>) {
    return Dual{quotient, unless_constant(b.slope, divide(negative(multiply(quotient, b.slope)), y))};
  } else {
    return quotient;
  }
}

template <Number A>
inline A operator-(const A& a) {
  if constexpr (kIsDual<A>) {
    return {negative(a.value), negative(a.slope)};
  } else {
    return negative(a);
  }
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
// PyTorch's where the function has a corner. (A lambda would not have the target attribute of its function.)
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
ATTENTIVE_LANE_FUNCTION(exp, exp_of(x), multiply(lanes_of(y), a.slope))
ATTENTIVE_LANE_FUNCTION(log, log_of(x), unless_constant(a.slope, divide(a.slope, a.value)))
ATTENTIVE_LANE_FUNCTION(tanh, tanh(x), multiply(a.slope, lanes_of(1.0f - y * y)))
ATTENTIVE_LANE_FUNCTION(sqrt, sqrt_of(x), unless_constant(a.slope, divide(a.slope, lanes_of(2.0f * y))))
ATTENTIVE_LANE_FUNCTION(rsqrt, 1.0f / sqrt_of(x),
                        unless_constant(a.slope, multiply(a.slope, lanes_of(-0.5f * y * y * y))))
/// The derivative at 0 is 0.
ATTENTIVE_LANE_FUNCTION(abs, magnitude(x),
                        multiply(a.slope, lanes_of(select(x > all(0.0f), all(1.0f),
                                                          select(x < all(0.0f), all(-1.0f), all(0.0f))))))
ATTENTIVE_LANE_FUNCTION(sigmoid, sigmoid_of(x), multiply(a.slope, lanes_of(y*(1.0f - y))))
ATTENTIVE_LANE_FUNCTION(softplus, softplus_of(x), multiply(a.slope, lanes_of(sigmoid_of(x))))
ATTENTIVE_LANE_FUNCTION(sin, sine_of(x, 0), multiply(a.slope, lanes_of(sine_of(x, 1))))
ATTENTIVE_LANE_FUNCTION(cos, sine_of(x, 1), multiply(a.slope, lanes_of(-sine_of(x, 0))))
/// The derivative is 0 everywhere.
ATTENTIVE_LANE_FUNCTION(floor, floor_of(x), lanes_of(all(0.0f)))
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

template <class A, class B>
requires NumberOperands<A, B>
inline auto pow(const A& a, const B& b) {
  const Vec x = vec(value(a)), y = vec(value(b));
  const Vec power = pow_of(x, y);
  if constexpr (kIsDual<A> || kIsDual<B>) {
    Vec total = all(0.0f);
    if constexpr (kIsDual<A>) {
      const Vec by_base = select(y == all(0.0f), all(0.0f), y * pow_of(x, y, 1.0f)) * vec(a.slope);
      total += vec(unless_constant(a.slope, lanes_of(by_base)));
    }
    if constexpr (kIsDual<B>) {
      const Int none = (power == all(0.0f)) | ((x == all(0.0f)) & (y >= all(0.0f)));
      const Vec by_exponent = select(none, all(0.0f), power * log_of(x)) * vec(b.slope);
      total += vec(unless_constant(b.slope, lanes_of(by_exponent)));
    }
    return Dual{lanes_of(power), lanes_of(total)};
  } else {
    return lanes_of(power);
  }
}

/// Chooses between numbers per pair; the derivative is that of the chosen one.
template <class A, class B>
inline auto choose_number(Int condition, const A& yes, const B& no) {
  const Lanes chosen = choose(condition, value(yes), value(no));
  if constexpr (kIsDual<A> || kIsDual<B>) {
    return Dual{chosen, choose(condition, slope(yes), slope(no))};
  } else {
    return chosen;
  }
}

/// The larger number, or NaN if either is NaN. Where both are equal, each has half of the derivative.
template <class A, class B>
requires NumberOperands<A, B>
inline auto max(const A& a, const B& b) {
  const Vec x = vec(value(a)), y = vec(value(b));
  auto result = choose_number((x > y) | is_nan(x), a, b);
  if constexpr (kIsDual<decltype(result)>)
    result.slope = choose(x == y, lanes_of(0.5f * (vec(slope(a)) + vec(slope(b)))), result.slope);
  return result;
}
template <class A, class B>
requires NumberOperands<A, B>
inline auto min(const A& a, const B& b) {
  const Vec x = vec(value(a)), y = vec(value(b));
  auto result = choose_number((x < y) | is_nan(x), a, b);
  if constexpr (kIsDual<decltype(result)>)
    result.slope = choose(x == y, lanes_of(0.5f * (vec(slope(a)) + vec(slope(b)))), result.slope);
  return result;
}

template <class A, class B>
requires NumberOperands<A, B> ||
    (Plain<A>&& Plain<B>)inline auto where(const LaneMask& condition, const A& yes, const B& no) {
  return choose_number(bits(condition), yes, no);
}

ATTENTIVE_SIMD_END

#endif
