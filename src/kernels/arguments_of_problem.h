#pragma once

// From a problem to what our own kernels read, on the CPU and on CUDA alike.

#include <vector>

#include <ATen/core/Tensor.h>

#include "kernels/arguments.h"
#include "kernels/problem.h"

namespace attentive::kernels {

struct MaskTensors {
  at::Tensor keep;     // bool (B, H, L, S), strides of 0 where it is broadcast
  at::Tensor bias;     // float likewise
  at::Tensor slopes;   // float (B, H)
  at::Tensor lengths;  // int64 (B), contiguous
  at::Tensor sinks;    // float (H), contiguous

  // As they came back from autograd.
  static MaskTensors saved(const at::Tensor* first) {
    return {first[0], first[1], first[2], first[3], first[4]};
  }
};

struct Arguments {
  Scalars scalars;
  MaskTensors masks;

  // Moves the terms behind what save_for_backward gets, undefined ones among them: it raises if one was changed.
  std::vector<at::Tensor> with_masks(std::vector<at::Tensor> saved);
};

// The key of a problem's dropout, drawn from its generator unless the problem has one already. 0 without
// dropout.
uint64_t dropout_key_of(const Problem& problem);

// With `for_backward` nothing that the caller may still change is kept by reference
// alone: a mask of pairs is what save_for_backward watches, everything smaller (and what InferenceMode made,
// which has no version to watch) is copied. A buffer of lengths may thus be refilled for the next forward
// pass.
Arguments arguments_of(const Problem& problem, uint64_t dropout_key, bool for_backward);

KernelArguments kernel_arguments(const Scalars& scalars, const MaskTensors& masks);

}  // namespace attentive::kernels
