#include <attentive/compat/transformer_decoder_layer.h>

#include "compat/transformer_blocks.h"
#include "modules/first_weights.h"

namespace attentive::compat {

TransformerDecoderLayerImpl::TransformerDecoderLayerImpl(TransformerDecoderLayerOptions options_)
    : options(std::move(options_)) {
  build();
}

void TransformerDecoderLayerImpl::reset() {
  check_layer_options(kName, options);
  const int64_t features = options.d_model(), hidden = options.dim_feedforward();
  const auto linear = [&](int64_t in, int64_t out) { return linear_layer(in, out, options.bias()); };
  self_attn = register_module("self_attn", MultiheadAttention(attention_options(options)));
  multihead_attn = register_module("multihead_attn", MultiheadAttention(attention_options(options)));
  linear1 = register_module("linear1", linear(features, hidden));
  dropout = register_module("dropout", torch::nn::Dropout(options.dropout()));
  linear2 = register_module("linear2", linear(hidden, features));
  norm1 = register_module("norm1", LayerNorm(norm_options(options)));
  norm2 = register_module("norm2", LayerNorm(norm_options(options)));
  norm3 = register_module("norm3", LayerNorm(norm_options(options)));
  dropout1 = register_module("dropout1", torch::nn::Dropout(options.dropout()));
  dropout2 = register_module("dropout2", torch::nn::Dropout(options.dropout()));
  dropout3 = register_module("dropout3", torch::nn::Dropout(options.dropout()));
}

at::Tensor TransformerDecoderLayerImpl::forward(const at::Tensor& tgt, const at::Tensor& memory,
                                                const at::Tensor& tgt_mask, const at::Tensor& memory_mask,
                                                const at::Tensor& tgt_key_padding_mask,
                                                const at::Tensor& memory_key_padding_mask, bool tgt_is_causal,
                                                bool memory_is_causal) {
  check_decoder_call(
      kName, options, linear1->weight, tgt, "memory", memory,
      {"tgt_mask", tgt_mask, "tgt_key_padding_mask", tgt_key_padding_mask, "tgt_is_causal", tgt_is_causal},
      {"memory_mask", memory_mask, "memory_key_padding_mask", memory_key_padding_mask, "memory_is_causal",
       memory_is_causal});
  auto x = residual(options.norm_first(), tgt, norm1, [&](const at::Tensor& y) {
    const auto output = std::get<0>(self_attn->forward(y, y, y, tgt_key_padding_mask, /*need_weights=*/false,
                                                       tgt_mask, true, tgt_is_causal));
    return drop_attention(options, dropout1, output);
  });
  x = residual(options.norm_first(), x, norm2, [&](const at::Tensor& y) {
    const auto output =
        std::get<0>(multihead_attn->forward(y, memory, memory, memory_key_padding_mask,
                                            /*need_weights=*/false, memory_mask, true, memory_is_causal));
    return drop_attention(options, dropout2, output);
  });
  return residual(options.norm_first(), x, norm3, [&](const at::Tensor& y) {
    return dropout3->forward(feed_forward(options, y, linear1, dropout, linear2));
  });
}

}  // namespace attentive::compat
