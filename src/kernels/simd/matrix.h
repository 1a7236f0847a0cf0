#pragma once

// Views of the numbers that vector code reads and writes: plain pointers, sizes and strides. Their functions
// are always inlined, because the linker could otherwise use a copy compiled for a wide instruction set in
// code for a narrower one.

#include <cstdint>

#include <attentive/score/vector_set.h>

#define ATTENTIVE_ALWAYS_INLINE __attribute__((always_inline)) inline

namespace attentive::kernels::cpu {

using bf16_t = uint16_t;  ///< the upper half of a float
/// A number of float16. It is only stored: every operation widens it to float32 first.
struct f16_t {
  uint16_t bits;
};

template <class T>
inline constexpr bool kIsBf16 = false;
template <>
inline constexpr bool kIsBf16<bf16_t> = true;
template <>
inline constexpr bool kIsBf16<const bf16_t> = true;

/// A matrix with contiguous rows, whose beginnings are `stride` numbers apart.
template <class T>
struct Matrix {
  T* data = nullptr;
  int64_t rows = 0, cols = 0, stride = 0;

  ATTENTIVE_ALWAYS_INLINE T* row(int64_t r) const { return data + r * stride; }
  /// `count` rows from row r on.
  ATTENTIVE_ALWAYS_INLINE Matrix part(int64_t r, int64_t count) const {
    return {row(r), count, cols, stride};
  }
  ATTENTIVE_ALWAYS_INLINE Matrix block(int64_t r, int64_t count, int64_t c, int64_t width) const {
    return {row(r) + c, count, width, stride};
  }
  ATTENTIVE_ALWAYS_INLINE operator Matrix<const T>() const { return {data, rows, cols, stride}; }
};

/// The right-hand side of a product. A float matrix can be used directly. Products of bfloat16 take two
/// numbers of the inner dimension at a time, so their rhs is packed in pairs of rows: number (r, c) is
/// data[r / 2 * 2 * stride + 2 * c + r % 2]. A block begins at an even row.
template <class T>
struct Rhs {
  static constexpr int64_t kPair = kIsBf16<T> ? 2 : 1;
  T* data = nullptr;
  int64_t rows = 0, cols = 0, stride = 0;

  ATTENTIVE_ALWAYS_INLINE Rhs block(int64_t r, int64_t count, int64_t c, int64_t width) const {
    return {data + r * stride + c * kPair, count, width, stride};
  }
  ATTENTIVE_ALWAYS_INLINE operator Rhs<const T>() const { return {data, rows, cols, stride}; }
};

}  // namespace attentive::kernels::cpu
