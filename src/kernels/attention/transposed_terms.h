#pragma once

// Transposes parts of the terms of a call for the backward pass, as RowTerms reads them by rows.

#include <type_traits>

#include "kernels/attention/call.h"
#include "kernels/gemm/operands.h"

namespace attentive::kernels::cpu {

/// Transposes a part of a bias or of the weights' gradient. `rows` is memory for a row per query.
template <class T>
void transpose_numbers(const kernels::Strided<const T>& given, const Pairs& part, const Matrix<float>& rows,
                       const Matrix<float>& to) {
  const auto transposed = to.block(0, part.keys, 0, part.queries);
  if constexpr (std::is_same_v<T, float>) {
    if (given.col == 1) {
      const auto* const first = given.at(part.b, part.h, part.i0, part.j0);
      return products().transpose(Matrix<const float>{first, part.queries, part.keys, given.row}, transposed);
    }
  }
  const auto wide = rows.block(0, part.queries, 0, part.keys);
  for (int64_t i = 0; i < part.queries; ++i)
    widen_row(given.at(part.b, part.h, part.i0 + i, part.j0), given.col, wide.row(i), part.keys);
  products().transpose(wide, transposed);
}

/// Transposes a part of the mask `keep`. Returns false if it hides all of it.
inline bool transpose_keep(const kernels::Strided<const bool>& keep, const Pairs& part,
                           const Matrix<uint8_t>& to) {
  bool any = false;
  for (int64_t i = 0; i < part.queries; ++i) {
    const bool* const row = keep.at(part.b, part.h, part.i0 + i, part.j0);
    for (int64_t r = 0; r < part.keys; ++r) {
      const bool kept = row[r * keep.col];
      to.row(r)[i] = kept;
      any |= kept;
    }
  }
  return any;
}

}  // namespace attentive::kernels::cpu
