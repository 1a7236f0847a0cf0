#include <attentive/compat/transformer_encoder_layer.h>

#include "compat/transformer_blocks.h"
#include "modules/first_weights.h"

namespace attentive::compat {

TransformerEncoderLayerImpl::TransformerEncoderLayerImpl(TransformerEncoderLayerOptions options_)
    : options(std::move(options_)) {
  build();
}

void TransformerEncoderLayerImpl::reset() {
  check_layer_options(kName, options);
  const int64_t features = options.d_model(), hidden = options.dim_feedforward();
  const auto linear = [&](int64_t in, int64_t out) { return linear_layer(in, out, options.bias()); };
  self_attn = register_module("self_attn", MultiheadAttention(attention_options(options)));
  linear1 = register_module("linear1", linear(features, hidden));
  dropout = register_module("dropout", torch::nn::Dropout(options.dropout()));
  linear2 = register_module("linear2", linear(hidden, features));
  norm1 = register_module("norm1", LayerNorm(norm_options(options)));
  norm2 = register_module("norm2", LayerNorm(norm_options(options)));
  dropout1 = register_module("dropout1", torch::nn::Dropout(options.dropout()));
  dropout2 = register_module("dropout2", torch::nn::Dropout(options.dropout()));
}

at::Tensor TransformerEncoderLayerImpl::forward(const at::Tensor& src, const at::Tensor& src_mask,
                                                const at::Tensor& src_key_padding_mask, bool is_causal) {
  check_encoder_call(
      kName, options, linear1->weight, src,
      {"src_mask", src_mask, "src_key_padding_mask", src_key_padding_mask, "is_causal", is_causal});
  auto x = residual(options.norm_first(), src, norm1, [&](const at::Tensor& y) {
    const auto output = std::get<0>(
        self_attn->forward(y, y, y, src_key_padding_mask, /*need_weights=*/false, src_mask, true, is_causal));
    return drop_attention(options, dropout1, output);
  });
  return residual(options.norm_first(), x, norm2, [&](const at::Tensor& y) {
    return dropout2->forward(feed_forward(options, y, linear1, dropout, linear2));
  });
}

}  // namespace attentive::compat
