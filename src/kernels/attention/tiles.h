#pragma once

// What the forward and the backward pass share: packed operands and the checks that keep hidden numbers out.
// A tensor's type (Stored) and that of the operands (T) are the same, or bf16 is widened to float32 on the way.

#include <cstring>
#include <type_traits>

#include "kernels/attention/call.h"
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/scratch.h"

namespace attentive::kernels::cpu {

template <class T>
inline constexpr bool kIsBf16 = std::is_same_v<T, bf16_t>;

// Inner dimension as the products want it: bf16 multiplies pairs.
template <class T>
int64_t inner(int64_t k) {
  return kIsBf16<T> ? round_up(k, 2) : k;
}

// Rows of `src` (rows, k) as the right side (k, rows) of a product, `width` columns apart; columns up to
// `width` that have no row become zero.
template <class T, class Stored>
void pack_right_transposed(const Stored* src, int64_t lds, int64_t rows, int64_t k, T* dst, int64_t width) {
  if (rows < width) std::memset(dst, 0, static_cast<size_t>(inner<T>(k) * width) * sizeof(T));
  if constexpr (kIsBf16<T>) {
    simd().pack_pairs_transposed(src, lds, dst, width, rows, k);
  } else if constexpr (kIsBf16<Stored>) {
    simd().transpose_from_bf16(src, lds, dst, width, rows, k);
  } else {
    simd().transpose(src, lds, dst, width, rows, k);
  }
}

template <class T>
bool rows_are_finite(const T* x, int64_t ld, int64_t rows, int64_t n) {
  if constexpr (kIsBf16<T>) {
    return simd().all_finite16(x, ld, rows, n);
  } else {
    return simd().all_finite(x, ld, rows, n);
  }
}

template <class T>
bool row_is_finite(const T* row, int64_t n) {
  return rows_are_finite(row, n, 1, n);
}

// Rows of a (rows, n) block as the right side of a product over the rows. Float rows serve as they lie; bf16
// rows are interleaved in pairs. Rows that `hide(r)` names become zero.
template <class T, class Hide>
const T* right_of_rows(const T* src, int64_t lds, int64_t rows, int64_t n, bool any_hidden, const Hide& hide,
                       T* buffer, int64_t* ld) {
  if (!any_hidden && !kIsBf16<T>) {
    *ld = lds;
    return src;
  }
  *ld = n;
  if (!any_hidden) {
    if constexpr (kIsBf16<T>) simd().pack_pairs(src, lds, buffer, n, rows, n);
    return buffer;
  }
  if constexpr (kIsBf16<T>) {
    bf16_t* out = buffer;
    for (int64_t r = 0; r < round_up(rows, 2); ++r) {
      const bool zero = r >= rows || hide(r);
      for (int64_t c = 0; c < n; ++c)
        out[r / 2 * n * 2 + c * 2 + r % 2] = zero ? bf16_t{0} : src[r * lds + c];
    }
  } else {
    for (int64_t r = 0; r < rows; ++r) {
      if (hide(r)) {
        std::memset(buffer + r * n, 0, static_cast<size_t>(n) * sizeof(T));
      } else {
        std::memcpy(buffer + r * n, src + r * lds, static_cast<size_t>(n) * sizeof(T));
      }
    }
  }
  return buffer;
}

// Rows that lie apart share few pages and the same lines of the cache: a product that reads them often as its
// right side wants them side by side. Says whether every number was finite.
template <class T, class Stored>
bool pack_rows(const Stored* src, int64_t lds, int64_t rows, int64_t n, T* dst) {
  if constexpr (kIsBf16<T>) {
    return simd().pack_pairs(src, lds, dst, n, rows, n);
  } else if constexpr (kIsBf16<Stored>) {
    return simd().copy_rows_from_bf16(src, lds, dst, n, rows, n);
  } else {
    return simd().copy_rows(src, lds, dst, n, rows, n);
  }
}

// A left side (rows, k). bf16 rows serve as they lie if k is even, and get a zero at the end otherwise; of
// float rows that lie apart, each would be a page of its own in the inner loop.
template <class T, class Stored>
const T* left_of_rows(const Stored* src, int64_t lds, int64_t rows, int64_t k, T* buffer, int64_t* ld) {
  if constexpr (std::is_same_v<T, Stored>) {
    *ld = lds;
    if (kIsBf16<T> ? k % 2 == 0 : lds == k) return src;
  }
  *ld = inner<T>(k);
  if constexpr (kIsBf16<T>) {
    for (int64_t r = 0; r < rows; ++r) {
      std::memcpy(buffer + r * *ld, src + r * lds, static_cast<size_t>(k) * sizeof(T));
      buffer[r * *ld + k] = 0;
    }
  } else {
    pack_rows(src, lds, rows, k, buffer);
  }
  return buffer;
}

}  // namespace attentive::kernels::cpu
