#pragma once

// What hides, biases and drops the keys of a row, in the words of SoftmaxRow.

#include "kernels/attention/call.h"
#include "kernels/gemm/scratch.h"

namespace attentive::kernels::cpu {

class RowTerms {
 public:
  // For `rows` rows of at most `cols` keys at a time. Without `dropped` every weight survives.
  RowTerms(const CpuArguments& call, Scratch& scratch, int64_t rows, int64_t cols, bool dropped);

  // Row i of a head for the keys [from, from + cols); `from` is a multiple of 16. What `row` then points to lasts
  // until the next row of the same slot.
  void set(SoftmaxRow& row, int64_t slot, int64_t b, int64_t h, int64_t i, int64_t from, int64_t cols) const;

 private:
  const CpuArguments& call_;
  int64_t cols_, groups_;  // room for a row
  uint8_t* keep_;          // copies of rows whose numbers lie apart
  float* bias_;
  uint16_t* drop_;  // null: nothing is dropped
};

// Takes a row's maximum m and total over from its softmax, and with them what was summed so far:
// O = O · exp(m - m′)
inline void follow_maximum(const SoftmaxRow& row, float& maximum, float& total, float* output, int64_t n) {
  const bool begun = total != 0.0f;
  maximum = row.maximum;
  total = row.sum;
  if (begun && row.rescale != 1.0f) elementwise().store_scaled(output, row.rescale, output, n);
}

}  // namespace attentive::kernels::cpu
