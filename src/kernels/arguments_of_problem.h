#pragma once

// Converts a problem to the form that this package's own kernels read, on the CPU and on CUDA.

#include <vector>

#include <ATen/core/Tensor.h>

#include "kernels/arguments.h"
#include "kernels/problem.h"

namespace attentive::kernels {

struct MaskTensors {
  at::Tensor keep;     ///< bool (B, H, L, S), strides of 0 where it is broadcast
  at::Tensor bias;     ///< float or a half type (B, H, L, S), likewise
  at::Tensor slopes;   ///< float (B, H)
  at::Tensor lengths;  ///< int64 (B), contiguous
  at::Tensor sinks;    ///< float (H), contiguous

  /// The tensors in the order in which `with_masks` passed them to autograd.
  static MaskTensors saved(const at::Tensor* first) {
    return {first[0], first[1], first[2], first[3], first[4]};
  }
};

struct Arguments {
  Scalars scalars;
  MaskTensors masks;

  /// Moves the mask tensors, undefined ones included, to the end of the list for save_for_backward. Autograd
  /// raises an error if one of them is changed before the backward pass.
  std::vector<at::Tensor> with_masks(std::vector<at::Tensor> saved);
};

/// The dropout key of a problem, drawn from its generator unless the problem already has one; 0 without
/// dropout.
uint64_t dropout_key_of(const Problem& problem);

/// The element types of biases that a kernel reads; a bias of another one is converted to float32.
enum class Biases { Float32, HalfTypes };

/// With `for_backward`, the caller may change the tensors afterwards: save_for_backward detects a changed
/// mask of pairs, and everything smaller is copied, so that a buffer of lengths may be refilled for the next
/// forward pass. Inference tensors are copied as well, since they have no version counter.
Arguments arguments_of(const Problem& problem, uint64_t dropout_key, Biases read, bool for_backward);

/// Copies the places of a part within its whole call.
void take_places(const Problem& problem, Scalars& scalars);

/// The element type of float32 and the half types.
Element element_of(at::ScalarType type);

KernelArguments kernel_arguments(const Scalars& scalars, const MaskTensors& masks);

}  // namespace attentive::kernels
