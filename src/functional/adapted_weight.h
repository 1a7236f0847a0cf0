#pragma once

// The weight of a layer whose forward function this package does not compute, together with its adapter.

#include <memory>

#include <ATen/core/Tensor.h>

#include "functional/adapters.h"

namespace attentive {

/// A tensor that every operation of PyTorch reads as weight + scale B A, with the numbers that these have at
/// that moment, and through which gradients flow to A, B and the weight. A merged adapter adds nothing. The
/// tensor has no memory of its own: code that reads its data pointer gets an error, and an operation that
/// would change it throws c10::ValueError. Dropout is not applied.
///
/// Throws c10::NotImplementedError if PyTorch does not accept the kernel behind it.
at::Tensor adapted_weight(const at::Tensor& weight, std::shared_ptr<const LowRank> adapter);

}  // namespace attentive
