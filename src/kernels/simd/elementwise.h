#pragma once

// Vector code for elementwise functions, for rows of numbers, and for random bits.

#include "kernels/simd/matrix.h"
#include "kernels/simd/vector_code.h"

namespace attentive::kernels::cpu {

/// The dropout bits of the rows i to i + count - 1 (Band::counter_row) for the 128 keys of a block.
struct DropoutBits {
  uint64_t key;
  uint32_t threshold, b, h, i, count, block;
  uint16_t* out;  ///< out[n * row_stride + g * stride] gets keys 16 g … 16 g + 15 of row i + n
  int64_t row_stride, stride;
};

struct ElementwiseFunctions {
  /// Between float32 and a half type, rounded to nearest.
  Overloaded<void(const float* from, bf16_t* to, int64_t n), void(const bf16_t* from, float* to, int64_t n),
             void(const float* from, f16_t* to, int64_t n), void(const f16_t* from, float* to, int64_t n),
             void(const float* from, float* to, int64_t n)>
      convert;
  /// to = x * factor; `x` and `to` may be the same row.
  Overloaded<void(const float* x, float factor, float* to, int64_t n),
             void(const float* x, float factor, bf16_t* to, int64_t n),
             void(const float* x, float factor, f16_t* to, int64_t n)>
      store_scaled;
  /// to = to + x, to = to * x
  void (*add)(const float* x, float* to, int64_t n);
  void (*multiply_by)(const float* x, float* to, int64_t n);
  /// Rotates the pairs (a, b) in the two halves of x, of n numbers each: (a cos - b sin, b cos + a sin).
  void (*rotate_halves)(const float* x, const float* cos, const float* sin, float* to, int64_t n);
  Overloaded<float(const float* a, const float* b, int64_t n),
             float(const bf16_t* a, const bf16_t* b, int64_t n),
             float(const f16_t* a, const f16_t* b, int64_t n)>
      dot;
  Overloaded<bool(const Matrix<const float>&), bool(const Matrix<const bf16_t>&),
             bool(const Matrix<const f16_t>&)>
      all_finite;

  /// GELU in its tanh form, and the gradient of its argument; `x` and `y` may be the same row.
  void (*gelu)(const float* x, float* y, int64_t n);
  void (*gelu_gradient)(const float* x, const float* dy, float* dx, int64_t n);
  /// x / (1 + exp(-x)); `x` and `y` may be the same row.
  void (*silu)(const float* x, float* y, int64_t n);

  /// y = x * factor where bit i % 16 of bits[i / 16] is set, else 0
  void (*scale_survivors)(const float* x, const uint16_t* bits, float factor, float* y, int64_t n);

  void (*dropout_bits)(const DropoutBits&);
};

inline const ElementwiseFunctions& elementwise() {
  return *vector_code().elementwise;
}

}  // namespace attentive::kernels::cpu
