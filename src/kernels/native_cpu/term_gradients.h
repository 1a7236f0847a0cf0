#pragma once

// The terms that the backward pass writes for the sinks, the bias and the slopes, and their sums.

#include "kernels/attention/passes.h"
#include "kernels/native_cpu/compute.h"

namespace attentive::kernels::native_cpu {

class TermGradients {
 public:
  TermGradients(const cpu::CpuArguments& call, const Wanted& wanted, const at::TensorOptions& floats);

  /// Memory for the terms of the sinks (B, H, L); null: not wanted.
  float* sinks() const;
  /// Memory for the gradients of logits. T is the type of q.
  template <class T>
  cpu::LogitGradients<T> logits() const;
  /// Adds the terms up, when all are written.
  void finish(Gradients& gradients) const;

 private:
  const Wanted& wanted_;
  at::Tensor sinks_, slopes_, by_key_, by_query_;
  at::Tensor pairs_;      ///< the gradient of the bias, whose pairs are each written once
  at::Tensor pair_sums_;  ///< float32: the gradient of a bias that is added in several items or heads
};

}  // namespace attentive::kernels::native_cpu
