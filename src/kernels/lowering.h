#pragma once

// A problem as our own kernels read it, on the CPU and on CUDA alike: numbers, and the tensors beside q, k
// and v.

#include <vector>

#include <ATen/core/Tensor.h>

#include "kernels/numbers.h"
#include "kernels/problem.h"

namespace attentive::kernels {

struct Terms {
  at::Tensor keep;     // bool (B, H, L, S), strides of 0 where it is broadcast
  at::Tensor bias;     // float likewise
  at::Tensor slopes;   // float (B, H)
  at::Tensor lengths;  // int64 (B), contiguous
  at::Tensor sinks;    // float (H), contiguous

  // For save_for_backward, which raises if one was changed meanwhile; undefined ones among them.
  std::vector<at::Tensor> to_save() const { return {keep, bias, slopes, lengths, sinks}; }
  static Terms saved(const at::Tensor* first) { return {first[0], first[1], first[2], first[3], first[4]}; }
};

struct Lowered {
  Numbers numbers;
  Terms terms;
};

// Draws the dropout key. With `for_backward` nothing that the caller may still change is kept by reference
// alone: a mask of pairs is what save_for_backward watches, everything smaller (and what InferenceMode made,
// which has no version to watch) is copied. A buffer of lengths may thus be refilled for the next forward
// pass.
Lowered lower(const Problem& problem, bool for_backward);

}  // namespace attentive::kernels
