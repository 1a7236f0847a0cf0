#include <ATen/ops/dropout.h>

#include <attentive/notebooks/toy_notebook.h>

#include "modules/attend.h"
#include "modules/checks.h"
#include "modules/first_weights.h"
#include "modules/projection.h"

namespace attentive {

void ScaledDotProductAttentionImpl::reset() {
  check_attention_options(kName, options);
}

std::pair<at::Tensor, at::Tensor> ScaledDotProductAttentionImpl::forward(const at::Tensor& Q,
                                                                         const at::Tensor& K,
                                                                         const at::Tensor& V,
                                                                         const Mask& mask) {
  return forward_with_weights(Q, K, V, mask, Weights::Dropped);
}

std::pair<at::Tensor, at::Tensor> ScaledDotProductAttentionImpl::forward_with_weights(
    const at::Tensor& Q, const at::Tensor& K, const at::Tensor& V, const Mask& mask, Weights which) {
  return attend(*this, Q, K, V, mask, which);
}

void MultiHeadSelfAttentionImpl::reset() {
  check_positive(kName, "d_model", options.d_model());
  check_heads(kName, "d_model", options.d_model(), options.num_heads());
  check_attention_options(kName, options);

  const auto projection = torch::nn::LinearOptions(options.d_model(), options.d_model()).bias(false);
  W_q = register_module("W_q", linear_layer(projection));
  W_k = register_module("W_k", linear_layer(projection));
  W_v = register_module("W_v", linear_layer(projection));
  W_o = register_module("W_o", linear_layer(projection));
}

std::pair<at::Tensor, at::Tensor> MultiHeadSelfAttentionImpl::forward(const at::Tensor& x, const Mask& mask) {
  return forward_with_weights(x, mask, Weights::Dropped);
}

std::pair<at::Tensor, at::Tensor> MultiHeadSelfAttentionImpl::forward_with_weights(const at::Tensor& x,
                                                                                   const Mask& mask,
                                                                                   Weights which) {
  check_sequence(kName, "x", x, options.d_model(), W_q->weight);
  const auto heads = [&](const torch::nn::Linear& layer) {
    return project_heads(layer, x, options.d_model() / options.num_heads());
  };
  const auto [y, weights] =
      project_out(W_o, attend(*this, heads(W_q), heads(W_k), heads(W_v), mask, which), x);
  // This dropout draws after that of the weights, from the same generator, as in the notebook.
  return {at::dropout(y, options.dropout(), is_training()), weights};
}

}  // namespace attentive
