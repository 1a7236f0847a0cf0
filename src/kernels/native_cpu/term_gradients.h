#pragma once

// The terms that the backward pass writes for the sinks, the bias and the slopes, and their sums.

#include "kernels/attention/passes.h"
#include "kernels/native_cpu/backend.h"

namespace attentive::kernels::native_cpu {

class TermGradients {
 public:
  TermGradients(const Call& call, const Wanted& wanted, const at::TensorOptions& floats);

  /// Memory for the terms of the sinks (B, H, L); null: not wanted.
  float* sinks() const;
  /// Memory for the gradients of logits. T is the type of q.
  template <class T>
  cpu::LogitGradients<T> logits() const;
  /// Whether sequences add to the same numbers.
  bool shared_by_sequences() const { return pair_sums_.defined(); }
  /// Adds the terms up, when all are written.
  void finish(Gradients& gradients) const;

 private:
  const Wanted& wanted_;
  const bool packed_;
  at::Tensor sinks_, slopes_, by_key_, by_query_;
  at::Tensor pairs_;      ///< the gradient of the bias, whose pairs are each written once
  at::Tensor pair_sums_;  ///< float32: the gradient of a bias that is added in several items or heads
};

/// Gradients of captured tensors. Every lane of work has its own sums, which are added in the order of the
/// lanes; their number depends only on shapes.
class CapturedGradients {
 public:
  /// Null: no gradients are wanted.
  CapturedGradients(const Call& call, const CallTensors* tensors);

  const std::vector<std::vector<attentive::detail::CapturedView>>& lanes() const { return lanes_; }
  /// The sums, float32; undefined for tensors of indices. None if no gradients are wanted.
  std::vector<at::Tensor> finish() const;

 private:
  std::vector<at::Tensor> sums_;  ///< (lanes, ...)
  std::vector<std::vector<attentive::detail::CapturedView>> lanes_;
};

}  // namespace attentive::kernels::native_cpu
