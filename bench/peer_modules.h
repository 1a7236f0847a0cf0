#pragma once

#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/activation.h>

#include <attentive/modules/multi_head_attention.h>

namespace bench {

/// The chapter-3 module as PyTorch's users write it, with the weights of an attentive module: by single
/// operations, with PyTorch's fused function, and as `torch::nn::MultiheadAttention`.
class PeerModules {
 public:
  /// Dropout on the attention weights is applied whenever `dropout` is positive.
  PeerModules(const attentive::MultiHeadAttention& module, int64_t context_length, double dropout);

  at::Tensor notebook(const at::Tensor& x) const;
  at::Tensor fused(const at::Tensor& x) const;
  at::Tensor library(const at::Tensor& x) const;

  std::vector<at::Tensor> weights;  ///< W_query, W_key, W_value, out_proj weight and bias
  std::vector<at::Tensor> library_weights() const { return library_->parameters(); }

 private:
  at::Tensor heads(const at::Tensor& x, std::size_t which) const;
  at::Tensor merge(const at::Tensor& context) const;

  int64_t num_heads_;
  double dropout_;
  at::Tensor hidden_;  ///< (context_length, context_length), true above the diagonal
  mutable torch::nn::MultiheadAttention library_;
};

}  // namespace bench
