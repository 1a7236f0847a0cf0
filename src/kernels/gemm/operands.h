#pragma once

// Makes operands of products from rows of a tensor. The element type of the tensor (Stored) is that of the
// operands (T), or a half type that is widened to float32.

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "kernels/gemm/products.h"
#include "kernels/simd/elementwise.h"

namespace attentive::kernels::cpu {

/// Calls work(T{}) for the type T of the operands of products. Only bfloat16 has products of its own, on some
/// CPUs.
template <class Stored, class Work>
void for_operands(const Work& work) {
  if constexpr (kIsBf16<Stored>) {
    if (has_gemm_bf16()) return work(bf16_t{});
  }
  work(float{});
}

/// The inner dimension of a product, which is even for bfloat16 because it multiplies pairs.
template <class T>
int64_t inner(int64_t k) {
  return kIsBf16<T> ? (k + 1) / 2 * 2 : k;
}

/// Copies every `step`-th number of a row, from which float32 are made.
template <class T>
void widen_row(const T* from, int64_t step, float* to, int64_t count) {
  if (step == 1) return elementwise().convert(from, to, count);
  if (step == 0) {
    elementwise().convert(from, to, 1);
    std::fill_n(to, count, *to);
    return;
  }
  for (int64_t c = 0; c < count; ++c) elementwise().convert(from + c * step, to + c, 1);
}

/// Asks for the cache lines of a row that is read later, in the L2 cache: together, such rows can exceed L1.
template <class T>
void prefetch_row(const T* from, int64_t step, int64_t count) {
  constexpr int64_t kLine = 64 / sizeof(T);
  if (step != 1) return;
  for (int64_t c = 0; c < count; c += kLine) __builtin_prefetch(from + c, 0, 2);
  // GCC takes a function that only prefetches for one without effect and drops its calls.
  asm volatile("");
}

/// Asks for the cache lines of a contiguous row that is written later, so that the writes do not wait for
/// memory.
template <class T>
void prefetch_to_write(const T* row, int64_t count) {
  constexpr int64_t kLine = 64 / sizeof(T);
  for (int64_t c = 0; c < count; c += kLine) __builtin_prefetch(row + c, 1, 2);
  asm volatile("");  // as above
}

/// Views a float matrix as an rhs.
inline Rhs<const float> as_rhs(const Matrix<const float>& x) {
  return {x.data, x.rows, x.cols, x.stride};
}

/// Transposes the rows into a contiguous rhs; columns beyond the last row become zero.
template <class T, class Stored>
void pack_transposed(const Matrix<const Stored>& rows, const Rhs<T>& to) {
  if (rows.rows < to.cols) std::memset(to.data, 0, static_cast<size_t>(to.rows * to.stride) * sizeof(T));
  products().pack_transposed(rows, to);
}

/// Returns these rows as an lhs: in place if they are contiguous, otherwise as a copy in `buffer`, since each
/// would touch a different page in the inner loop. An odd number of columns of bfloat16 gets a zero at the
/// end.
template <class T, class Stored>
Matrix<const T> lhs_of(const Matrix<const Stored>& rows, T* buffer) {
  if constexpr (std::is_same_v<T, Stored>) {
    if (rows.stride == rows.cols && inner<T>(rows.cols) == rows.cols) return rows;
  }
  const Matrix<T> copy{buffer, rows.rows, inner<T>(rows.cols), inner<T>(rows.cols)};
  if constexpr (kIsBf16<T>) {
    for (int64_t r = 0; r < rows.rows; ++r) {
      std::memcpy(copy.row(r), rows.row(r), static_cast<size_t>(rows.cols) * sizeof(T));
      if (copy.cols > rows.cols) copy.row(r)[rows.cols] = 0;
    }
  } else {
    products().pack_rows(rows, Rhs<T>{buffer, copy.rows, copy.cols, copy.stride});
  }
  return copy;
}

/// Returns these rows as an rhs, with zeros in the rows for which `hide(r)` is true. Float rows are used in
/// place unless one is hidden.
template <class T, class Hide>
Rhs<const T> rhs_of(const Matrix<const T>& rows, bool any_hidden, const Hide& hide, T* buffer) {
  if (!any_hidden && !kIsBf16<T>) return {rows.data, rows.rows, rows.cols, rows.stride};
  const Rhs<T> copy{buffer, rows.rows, rows.cols, rows.cols};
  if (!any_hidden) {
    if constexpr (kIsBf16<T>) products().pack_rows(rows, copy);
    return copy;
  }
  for (int64_t r = 0; r < inner<T>(rows.rows); ++r) {
    const bool zero = r >= rows.rows || hide(r);
    T* const out = copy.data + r / copy.kPair * copy.kPair * copy.stride + r % copy.kPair;
    for (int64_t c = 0; c < rows.cols; ++c) out[c * copy.kPair] = zero ? T{0} : rows.row(r)[c];
  }
  return copy;
}

template <class T>
bool row_is_finite(const T* row, int64_t n) {
  return elementwise().all_finite(Matrix<const T>{row, 1, n, n});
}

}  // namespace attentive::kernels::cpu
