#pragma once

// Transposes parts of the terms of a call for the backward pass, as RowTerms reads them by rows.

#include <algorithm>
#include <bit>
#include <cstring>

#include "kernels/attention/own_functions.h"
#include "kernels/gemm/operands.h"

namespace attentive::kernels::cpu {

/// Transposes a part of a bias or of the weights' gradient. `rows` is memory for a row per query.
template <class T>
void transpose_numbers(const kernels::Strided<const T>& given, const Pairs& part, const Matrix<float>& rows,
                       const Matrix<float>& to) {
  const T* const first = given.at(part.b, part.h, part.i0, part.j0);
  const auto transposed = to.block(0, part.keys, 0, part.queries);
  if (given.col == 1) {
    products().transpose(Matrix<const T>{first, part.queries, part.keys, given.row}, transposed);
    return;
  }
  const auto wide = rows.block(0, part.queries, 0, part.keys);
  for (int64_t i = 0; i < part.queries; ++i)
    widen_row(first + i * given.row, given.col, wide.row(i), part.keys);
  products().transpose(wide, transposed);
}

/// Transposes 8 by 8 bytes: byte j of word i becomes byte i of word j.
inline void transpose_bytes(uint64_t (&words)[8]) {
  static_assert(std::endian::native == std::endian::little);
  // Exchanges the upper part of each group of bits of one word with the lower part of the other's.
  const auto exchange = [&](int i, int j, int bits, uint64_t lower) {
    const uint64_t difference = ((words[i] >> bits) ^ words[j]) & lower;
    words[j] ^= difference;
    words[i] ^= difference << bits;
  };
  for (int i = 0; i < 4; ++i) exchange(i, i + 4, 32, 0x00000000ffffffff);
  for (const int i : {0, 1, 4, 5}) exchange(i, i + 2, 16, 0x0000ffff0000ffff);
  for (const int i : {0, 2, 4, 6}) exchange(i, i + 1, 8, 0x00ff00ff00ff00ff);
}

/// Transposes a part of the mask `keep`. Returns false if it hides all of it.
inline bool transpose_keep(const kernels::Strided<const bool>& keep, const Pairs& part,
                           const Matrix<uint8_t>& to) {
  uint64_t any = 0;
  const int64_t whole_i = keep.col == 1 ? part.queries / 8 * 8 : 0, whole_r = part.keys / 8 * 8;
  for (int64_t i = 0; i < whole_i; i += 8) {
    for (int64_t r = 0; r < whole_r; r += 8) {
      uint64_t words[8];
      for (int n = 0; n < 8; ++n) {
        std::memcpy(&words[n], keep.at(part.b, part.h, part.i0 + i + n, part.j0 + r), sizeof(words[n]));
        any |= words[n];
      }
      transpose_bytes(words);
      for (int n = 0; n < 8; ++n) std::memcpy(to.row(r + n) + i, &words[n], sizeof(words[n]));
    }
  }
  for (int64_t i = 0; i < part.queries; ++i) {
    const bool* const row = keep.at(part.b, part.h, part.i0 + i, part.j0);
    for (int64_t r = i < whole_i ? whole_r : 0; r < part.keys; ++r) {
      const bool kept = row[r * keep.col];
      to.row(r)[i] = kept;
      any |= static_cast<uint64_t>(kept);
    }
  }
  return any != 0;
}

/// Hides the pairs of a part that the program's own mask hides, besides those that are hidden.
inline void transpose_own_mask(const CpuArguments& call, const Pairs& part, const Matrix<uint8_t>& to) {
  OwnRows own(call, OwnRows::Along::Queries);
  for (int64_t r = 0; r < part.keys; ++r) {
    const int64_t j = part.j0 + r;
    if (!call.keep) std::fill_n(to.row(r), part.queries, uint8_t{1});
    own.mask({part.b, part.h, j, part.i0, std::max<int64_t>(call.query_lo(j) - part.i0, 0),
              std::min(call.query_hi(part.b, j) - part.i0, part.queries)},
             to.row(r));
  }
}

}  // namespace attentive::kernels::cpu
