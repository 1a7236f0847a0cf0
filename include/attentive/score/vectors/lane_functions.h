#ifndef ATTENTIVE_SCORE_LANE_FUNCTIONS_H
#define ATTENTIVE_SCORE_LANE_FUNCTIONS_H

// The functions that a score function calls on numbers of a vector of pairs.

#include <attentive/score/vectors/lanes.h>

ATTENTIVE_SIMD_BEGIN

// Each function of one number: its value, and with a derivative, which is PyTorch's where the function has a
// corner.

template <Number A>
inline A exp(const A& a) {
  const Lanes y = lanes_of(exp_of(vec(value(a))));
  if constexpr (kIsDual<A>) {
    return {y, multiply(y, a.slope)};
  } else {
    return y;
  }
}

template <Number A>
inline A log(const A& a) {
  const Lanes y = lanes_of(log_of(vec(value(a))));
  if constexpr (kIsDual<A>) {
    return {y, unless_constant(a.slope, divide(a.slope, a.value))};
  } else {
    return y;
  }
}

template <Number A>
inline A tanh(const A& a) {
  const Lanes y = lanes_of(tanh(vec(value(a))));
  if constexpr (kIsDual<A>) {
    return {y, multiply(a.slope, lanes_of(1.0f - vec(y) * vec(y)))};
  } else {
    return y;
  }
}

template <Number A>
inline A sqrt(const A& a) {
  const Lanes y = lanes_of(sqrt_of(vec(value(a))));
  if constexpr (kIsDual<A>) {
    return {y, unless_constant(a.slope, divide(a.slope, lanes_of(2.0f * vec(y))))};
  } else {
    return y;
  }
}

template <Number A>
inline A rsqrt(const A& a) {
  const Lanes y = lanes_of(1.0f / sqrt_of(vec(value(a))));
  if constexpr (kIsDual<A>) {
    return {y, unless_constant(a.slope, multiply(a.slope, lanes_of(-0.5f * vec(y) * vec(y) * vec(y))))};
  } else {
    return y;
  }
}

/// The derivative at 0 is 0.
template <Number A>
inline A abs(const A& a) {
  const Vec x = vec(value(a));
  const Lanes y = lanes_of(magnitude(x));
  if constexpr (kIsDual<A>) {
    const Vec sign = select(x > all(0.0f), all(1.0f), select(x < all(0.0f), all(-1.0f), all(0.0f)));
    return {y, multiply(a.slope, lanes_of(sign))};
  } else {
    return y;
  }
}

template <Number A>
inline A sigmoid(const A& a) {
  const Vec y = sigmoid_of(vec(value(a)));
  if constexpr (kIsDual<A>) {
    return {lanes_of(y), multiply(a.slope, lanes_of(y * (1.0f - y)))};
  } else {
    return lanes_of(y);
  }
}

template <Number A>
inline A softplus(const A& a) {
  const Lanes y = lanes_of(softplus_of(vec(value(a))));
  if constexpr (kIsDual<A>) {
    return {y, multiply(a.slope, lanes_of(sigmoid_of(vec(a.value))))};
  } else {
    return y;
  }
}

template <Number A>
inline A sin(const A& a) {
  const Lanes y = lanes_of(sine_of(vec(value(a)), 0));
  if constexpr (kIsDual<A>) {
    return {y, multiply(a.slope, lanes_of(sine_of(vec(a.value), 1)))};
  } else {
    return y;
  }
}

template <Number A>
inline A cos(const A& a) {
  const Lanes y = lanes_of(sine_of(vec(value(a)), 1));
  if constexpr (kIsDual<A>) {
    return {y, multiply(a.slope, lanes_of(-sine_of(vec(a.value), 0)))};
  } else {
    return y;
  }
}

/// The derivative is 0 everywhere.
template <Number A>
inline A floor(const A& a) {
  const Lanes y = lanes_of(floor_of(vec(value(a))));
  if constexpr (kIsDual<A>) {
    return {y, lanes_of(all(0.0f))};
  } else {
    return y;
  }
}

// Indices are numbers to these functions.
template <Index I>
inline Lanes exp(const I& i) {
  return exp(value(i));
}
template <Index I>
inline Lanes log(const I& i) {
  return log(value(i));
}
template <Index I>
inline Lanes tanh(const I& i) {
  return tanh(value(i));
}
template <Index I>
inline Lanes sqrt(const I& i) {
  return sqrt(value(i));
}
template <Index I>
inline Lanes rsqrt(const I& i) {
  return rsqrt(value(i));
}
template <Index I>
inline Lanes sigmoid(const I& i) {
  return sigmoid(value(i));
}
template <Index I>
inline Lanes softplus(const I& i) {
  return softplus(value(i));
}
template <Index I>
inline Lanes sin(const I& i) {
  return sin(value(i));
}
template <Index I>
inline Lanes cos(const I& i) {
  return cos(value(i));
}
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
