#pragma once

#include <ATen/core/Tensor.h>

namespace attentive {

/// The weights of a language model for its tokens: the table of the embedding, and the weight of the head,
/// (vocabulary, features) each, which may be one tensor.
///
/// If they are one and its gradient is wanted, the two uses read it as two tensors over the same memory, so
/// that the rows that were looked up are added to the head's gradient in place. Autograd alone would first
/// make a second gradient of the size of the table. Gradients are dense and have the same bits either way.
class TokenWeights {
 public:
  /// ids: the tokens that will be looked up. If there are as many as words, or if the weights are not on the
  /// CPU, nothing is gained, and both uses read the tensors as they are.
  TokenWeights(const at::Tensor& table, const at::Tensor& head, const at::Tensor& ids);

  const at::Tensor& head() const { return head_; }
  /// The rows of ids (...): (..., features).
  at::Tensor rows_of(const at::Tensor& ids) const;

 private:
  at::Tensor table_, head_;
  bool split_ = false;
};

}  // namespace attentive
