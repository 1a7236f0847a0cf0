#include "peer_modules.h"

#include <cmath>
#include <limits>

#include <ATen/ATen.h>

#include "inputs.h"

namespace bench {

PeerModules::PeerModules(const attentive::MultiHeadAttention& module, int64_t context_length, double dropout)
    : weights({module->W_query->weight, module->W_key->weight, module->W_value->weight,
               module->out_proj->weight, module->out_proj->bias}),
      num_heads_(module->options.num_heads()),
      dropout_(dropout),
      hidden_(hidden_by(context_length, {}, weights[0].device())),
      library_(torch::nn::MultiheadAttentionOptions(module->options.d_out(), num_heads_).dropout(dropout)) {
  const at::NoGradGuard no_grad;
  library_->to(weights[0].device(), weights[0].scalar_type());
  library_->train(dropout > 0);
  library_->in_proj_weight.copy_(at::cat({weights[0], weights[1], weights[2]}));
  library_->in_proj_bias.zero_();
  library_->out_proj->weight.copy_(weights[3]);
  library_->out_proj->bias.copy_(weights[4]);
}

at::Tensor PeerModules::heads(const at::Tensor& x, std::size_t which) const {
  const auto y = at::linear(x, weights[which]);
  return y.view({y.size(0), y.size(1), num_heads_, -1}).transpose(1, 2);
}

at::Tensor PeerModules::merge(const at::Tensor& context) const {
  const auto y = context.transpose(1, 2);
  return at::linear(y.reshape({y.size(0), y.size(1), -1}), weights[3], weights[4]);
}

at::Tensor PeerModules::notebook(const at::Tensor& x) const {
  const auto T = x.size(1);
  const auto q = heads(x, 0), k = heads(x, 1), v = heads(x, 2);
  auto scores = at::matmul(q, k.transpose(2, 3));
  scores.masked_fill_(hidden_.narrow(0, 0, T).narrow(1, 0, T), -std::numeric_limits<double>::infinity());
  auto attention = at::softmax(scores / std::sqrt(static_cast<double>(k.size(-1))), -1);
  if (dropout_ > 0) attention = at::dropout(attention, dropout_, /*train=*/true);
  return merge(at::matmul(attention, v));
}

at::Tensor PeerModules::fused(const at::Tensor& x) const {
  return merge(at::scaled_dot_product_attention(heads(x, 0), heads(x, 1), heads(x, 2), {}, dropout_,
                                                /*is_causal=*/true));
}

at::Tensor PeerModules::library(const at::Tensor& x) const {
  const auto T = x.size(1);
  const auto y = x.transpose(0, 1);
  const auto [output, none] = library_->forward(y, y, y, /*key_padding_mask=*/{}, /*need_weights=*/false,
                                                hidden_.narrow(0, 0, T).narrow(1, 0, T));
  return output.transpose(0, 1);
}

}  // namespace bench
