#pragma once

// GELU in its tanh form, and SiLU.

#include <attentive/score/vectors/math.h>

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
