#pragma once

// Functions of rows of numbers: conversion, scaling, addition, dot products.

#include <attentive/score/vectors/math.h>

#include "kernels/simd/half_types.h"
#include "kernels/simd/matrix.h"

ATTENTIVE_SIMD_BEGIN

template <class From, class To>
void convert(const From* from, To* to, int64_t n) {
  for (int64_t i = 0; i < n; i += kWidth) store_part(to + i, load_part(from + i, n - i), n - i);
}

template <class To>
void store_scaled(const float* x, float factor, To* to, int64_t n) {
  for (int64_t i = 0; i < n; i += kWidth) store_part(to + i, load_part(x + i, n - i) * factor, n - i);
}

inline void add(const float* x, float* to, int64_t n) {
  for (int64_t i = 0; i < n; i += kWidth)
    store_part(to + i, load_part(to + i, n - i) + load_part(x + i, n - i), n - i);
}

inline void multiply_by(const float* x, float* to, int64_t n) {
  for (int64_t i = 0; i < n; i += kWidth)
    store_part(to + i, load_part(to + i, n - i) * load_part(x + i, n - i), n - i);
}

inline void rotate_halves(const float* x, const float* cos, const float* sin, float* to, int64_t n) {
  for (int64_t i = 0; i < n; i += kWidth) {
    const Vec a = load_part(x + i, n - i), b = load_part(x + n + i, n - i);
    const Vec c = load_part(cos + i, n - i), s = load_part(sin + i, n - i);
    store_part(to + i, a * c - b * s, n - i);
    store_part(to + n + i, b * c + a * s, n - i);
  }
}

template <class T>
float dot(const T* a, const T* b, int64_t n) {
  Vec total = all(0.0f);
  for (int64_t i = 0; i < n; i += kWidth) total += load_part(a + i, n - i) * load_part(b + i, n - i);
  return sum(total);
}

/// x - x is 0 for finite numbers and NaN for others.
template <class T>
bool all_finite(const Matrix<const T>& x) {
  Vec total = all(0.0f);
  for (int64_t r = 0; r < x.rows; ++r) {
    const T* const row = x.row(r);
    for (int64_t i = 0; i < x.cols; i += kWidth) {
      const Vec v = load_part(row + i, x.cols - i);
      total += v - v;
    }
  }
  return sum(total) == 0.0f;
}

/// x * factor where bit i % 16 of bits[i / 16] is set, else 0.
inline void scale_survivors(const float* x, const uint16_t* bits, float factor, float* y, int64_t n) {
  for (int64_t i = 0; i < n; i += kWidth) {
    const uint32_t lanes_kept = static_cast<uint32_t>(bits[i / 16]) >> (i % 16);
    store_part(y + i, where_bits(lanes_kept, load_part(x + i, n - i) * factor), n - i);
  }
}

ATTENTIVE_SIMD_END

// GELU in its tanh form, and SiLU.

ATTENTIVE_SIMD_BEGIN

constexpr float kGeluCubic = 0.044715f;
constexpr float kTwoSqrt2OverPi = 1.5957691216057308f;  ///< 2 sqrt(2 / pi)

/// 1 / (1 + e) with e = 2^t
inline Vec sigmoid_of(Vec t, Vec* e) {
  const Int gone = t > all(125.0f);  // beyond this, the reciprocal is not a normal number
  *e = exp2(select(gone, all(0.0f), t));
  return select(gone, all(0.0f), reciprocal(1.0f + *e));
}

/// 1 / (1 + e) with e = exp(-2 u) and u = sqrt(2 / pi) (x + 0.044715 x^3): GELU is x times this. `x2` is the
/// square of x. 1 - result equals e * result, which does not cancel.
inline Vec gelu_sigmoid(Vec x, Vec x2, Vec* e) {
  const Vec t = x * (x2 * (-kTwoSqrt2OverPi * kLog2e * kGeluCubic) - kTwoSqrt2OverPi * kLog2e);
  return sigmoid_of(t, e);
}

void gelu(const float* x, float* y, int64_t n) {
  for (int64_t i = 0; i < n; i += kWidth) {
    const Vec v = load_part(x + i, n - i);
    Vec e;
    store_part(y + i, v * gelu_sigmoid(v, v * v, &e), n - i);
  }
}

void gelu_gradient(const float* x, const float* dy, float* dx, int64_t n) {
  for (int64_t i = 0; i < n; i += kWidth) {
    const Vec v = load_part(x + i, n - i), v2 = v * v;
    Vec e;
    const Vec s = gelu_sigmoid(v, v2, &e);
    const Vec slope = kTwoSqrt2OverPi + (3.0f * kTwoSqrt2OverPi * kGeluCubic) * v2;
    store_part(dx + i, load_part(dy + i, n - i) * (s + v * s * (e * s) * slope), n - i);
  }
}

/// x / (1 + exp(-x))
void silu(const float* x, float* y, int64_t n) {
  for (int64_t i = 0; i < n; i += kWidth) {
    const Vec v = load_part(x + i, n - i);
    Vec e;
    store_part(y + i, v * sigmoid_of(v * -kLog2e, &e), n - i);
  }
}

ATTENTIVE_SIMD_END
