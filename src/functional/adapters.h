#pragma once

// Low-rank additions to weights. Adapters are keyed by the weight's TensorImpl, so that a projection finds
// them wherever the weight is used, also inside modules whose forward function cannot be replaced.

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include "functional/linear.h"

namespace attentive {

/// scale * (dropout(x) A^T) B^T, which is added to x W^T. With a magnitude m (DoRA), what is added to W is
/// m / |W + scale B A| (W + scale B A) - W, where the norms of the rows count as constants.
struct LowRank {
  at::Tensor a;          ///< (rank, features)
  at::Tensor b;          ///< (outputs, rank)
  at::Tensor magnitude;  ///< (outputs), or undefined
  double scale = 1.0;
  double dropout = 0.0;
  std::atomic<bool> training{true};
  std::atomic<bool> merged{false};  ///< whether the weights hold the addition already
};

/// The rows [first, first + count) of a weight, to which the rows [first_of_b, first_of_b + count) of B
/// belong.
struct AdaptedRows {
  std::shared_ptr<const LowRank> adapter;
  int64_t first = 0, first_of_b = 0, count = 0;
};

/// Enters additions for a weight, which the table keeps alive. Threads may compute meanwhile.
void put_adapter(const at::Tensor& weight, const AdaptedRows& rows);
/// Removes an adapter from all weights.
void remove_adapter(const LowRank& adapter);

/// The rows of a weight that have adapters, merged ones included.
std::vector<AdaptedRows> adapters_of(const at::Tensor& weight);

/// Whether any of the weights has an adapter that is not merged. Without adapters in the process, one load.
bool is_adapted(at::ArrayRef<LinearLayer> layers);

/// The additions to the products of x with the weights: (..., outputs), or undefined for a weight without an
/// adapter. Weights that share an adapter share its product with A and its dropout.
std::vector<at::Tensor> adapter_products(const at::Tensor& x, at::ArrayRef<LinearLayer> layers);

/// y + addition in the dtype of y; y itself if the addition is undefined.
at::Tensor with_addition(const at::Tensor& y, const at::Tensor& addition);

/// What is added to the rows of a weight, (count, features), in float32, or float64 for a float64 adapter.
at::Tensor dense_addition(const AdaptedRows& rows, const at::Tensor& weight);

// The weight of a layer whose forward function this package does not compute, together with its adapter.

/// A tensor that every operation of PyTorch reads as weight + `dense_addition`, with the numbers that these
/// have at that moment, and through which gradients flow to the adapter and the weight. A merged adapter adds
/// nothing. The tensor has no memory of its own: code that reads its data pointer gets an error, and an
/// operation that would change it throws c10::ValueError. Dropout is not applied.
///
/// Throws c10::NotImplementedError if PyTorch does not accept the kernel behind it.
at::Tensor adapted_weight(const at::Tensor& weight, std::shared_ptr<const LowRank> adapter);

}  // namespace attentive
