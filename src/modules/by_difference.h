#pragma once

// Biases that depend on the difference of two positions.

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace attentive {

/// Values by difference -> one value for each pair (query i, key j): dimension `dim`, of size queries + keys
/// - 1, becomes i, and j is appended. Pair (i, j) reads value j - i + queries - 1. Neither number may be 0.
at::Tensor by_difference(const at::Tensor& values, int64_t dim, int64_t keys);

/// A parameter in the dtype in which its gradients are summed: float32 for half types.
at::Tensor summed_wide(const at::Tensor& parameter);

}  // namespace attentive
