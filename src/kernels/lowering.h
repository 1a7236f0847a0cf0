#pragma once

// From a problem to what our own kernels read, on the CPU and on CUDA alike.

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

  // As they came back from autograd.
  static Terms saved(const at::Tensor* first) { return {first[0], first[1], first[2], first[3], first[4]}; }
};

struct Lowered {
  Numbers numbers;
  Terms terms;

  // Moves the terms behind what save_for_backward gets, undefined ones among them: it raises if one was changed.
  std::vector<at::Tensor> with_terms(std::vector<at::Tensor> saved);
};

// Draws the dropout key. With `for_backward` nothing that the caller may still change is kept by reference
// alone: a mask of pairs is what save_for_backward watches, everything smaller (and what InferenceMode made,
// which has no version to watch) is copied. A buffer of lengths may thus be refilled for the next forward
// pass.
Lowered lower(const Problem& problem, bool for_backward);

Call call_of(const Numbers& numbers, const Terms& terms);

}  // namespace attentive::kernels
