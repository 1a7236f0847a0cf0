#pragma once

// Shapes and memory layouts that the operators promise, for tensors with memory and for those of symbolic
// size without.

#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

namespace attentive::operators {

/// An output of `attention`, (..., H, L, Dv), which lies in memory as (..., L, H, Dv), so that merging the
/// heads afterwards is a view. Without heads it is contiguous.
inline at::Tensor output_like(const at::Tensor& q, const at::Tensor& v) {
  c10::SymDimVector sizes(q.sym_sizes());
  sizes.back() = v.sym_size(-1);
  const auto rank = sizes.size();
  if (rank < 4) return at::empty_symint(sizes, q.options());
  std::swap(sizes[rank - 3], sizes[rank - 2]);
  return at::empty_symint(sizes, q.options()).transpose(-3, -2);
}

/// The place of a result that was not asked for.
inline at::Tensor nothing(const at::TensorOptions& options) {
  return at::empty({0}, options);
}

/// The dtype of a logsumexp.
inline at::ScalarType wide_type(const at::Tensor& q) {
  return q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

}  // namespace attentive::operators
