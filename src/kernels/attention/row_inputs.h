#pragma once

// Sets the members of a SoftmaxRow that hide, bias and drop its keys, and applies the program's own score.
// The backward pass does the same for transposed rows in add_panel and take_gradients (backward.cpp).

#include <algorithm>
#include <array>

#include "kernels/attention/user_functions.h"
#include "kernels/gemm/operands.h"
#include "kernels/gemm/scratch.h"

namespace attentive::kernels::cpu {

/// Asks for the biases of query i and `count` keys from j on.
inline void prefetch_bias(const Call& call, int64_t b, int64_t h, int64_t i, int64_t j, int64_t count) {
  if (!call.bias) return;
  for_element(call.bias.element, [&](auto type) {
    const auto& bias = call.bias.as<decltype(type)>();
    prefetch_row(bias.at(b, h, i, j), bias.col, count);
  });
}

class RowInputs {
 public:
  /// Reserves `rows` slots for rows of at most `cols` keys. Without `dropped` every weight survives.
  RowInputs(const Call& call, Scratch& scratch, int64_t rows, int64_t cols, bool dropped);

  /// Sets `row` for query i of a head and the keys [from, from + cols), where `from` is a multiple of 16. The
  /// memory that `row` then points to is valid until the next call for the same slot. `tested`: the program's
  /// own mask is tested.
  void set(SoftmaxRow& row, int64_t slot, int64_t b, int64_t h, int64_t i, int64_t from, int64_t cols,
           bool tested = true) const;
  /// Replaces the scores of rows of consecutive queries, which are set, by those of the program's own
  /// function, if there is one. `count` is at most UserRows::kMostStripRows; the scores are rows of a matrix.
  void score(SoftmaxRow* rows, int64_t count, int64_t b, int64_t h, int64_t i, int64_t from) const;

  /// Asks for the biases of query i and the keys [from, from + cols), which `set` reads later.
  void prefetch(int64_t b, int64_t h, int64_t i, int64_t from, int64_t cols) const {
    prefetch_bias(call_, b, h, i, from, std::min(cols, call_.key_hi(b, i) - from));
  }

 private:
  const Call& call_;
  int64_t cols_, groups_;  ///< columns, and groups of 16 columns, per slot
  uint8_t* keep_;          ///< copies of rows that are not contiguous, or masked by a function
  float* bias_;            ///< likewise, or of a half type
  uint16_t* drop_;         ///< null: nothing is dropped
  mutable UserRows own_;   ///< the rows at work
  mutable std::array<detail::CallbackRange, UserRows::kMostStripRows> ranges_;
};

/// Turns rows of scores into weights: by the softmax, or as they are.
inline void rows_to_weights(const Call& call, SoftmaxRow* rows, int64_t count) {
  call.normalise ? rows_code().softmax_rows(rows, count) : rows_code().plain_rows(rows, count);
}

/// Updates a row's running maximum m and total from its softmax and rescales the output summed so far:
///   O = O · exp(m - m′)
inline void follow_maximum(const SoftmaxRow& row, float& maximum, float& total, float* output, int64_t n) {
  const bool begun = total != 0.0f;
  maximum = row.maximum;
  total = row.sum;
  if (begun && row.rescale != 1.0f) elementwise().store_scaled(output, row.rescale, output, n);
}

}  // namespace attentive::kernels::cpu
