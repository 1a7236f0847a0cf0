#include <attentive/compat/transformer_decoder.h>

#include "compat/transformer_blocks.h"
#include "modules/checks.h"

namespace attentive::compat {

TransformerDecoderImpl::TransformerDecoderImpl(const TransformerDecoderLayer& decoder_layer,
                                               int64_t num_layers, LayerNorm norm_)
    : options(decoder_layer->options, num_layers) {
  if (!norm_.is_empty()) options.norm(norm_->options);
  detail::build_module(kName, [&] { stack(decoder_layer, norm_); });
}

TransformerDecoderImpl::TransformerDecoderImpl(TransformerDecoderOptions options_)
    : options(std::move(options_)) {
  build();
}

void TransformerDecoderImpl::reset() {
  const TransformerDecoderLayer layer(options.layer());
  stack(layer, options.norm() ? LayerNorm(*options.norm()) : LayerNorm(nullptr));
}

void TransformerDecoderImpl::stack(const TransformerDecoderLayer& layer, LayerNorm last) {
  check_count(kName, "num_layers", options.num_layers());
  check_last_norm(kName, options.layer(), options.norm());
  layers = register_module("layers", copies_of(layer, options.num_layers()));
  if (!last.is_empty()) norm = register_module("norm", std::move(last));
}

at::Tensor TransformerDecoderImpl::forward(const at::Tensor& tgt, const at::Tensor& memory,
                                           const at::Tensor& tgt_mask, const at::Tensor& memory_mask,
                                           const at::Tensor& tgt_key_padding_mask,
                                           const at::Tensor& memory_key_padding_mask,
                                           std::optional<bool> tgt_is_causal, bool memory_is_causal) {
  auto& first = layers->at<TransformerDecoderLayerImpl>(0);
  check_decoder_call(kName, options.layer(), first.linear1->weight, tgt, "memory", memory,
                     {"tgt_mask", tgt_mask, "tgt_key_padding_mask", tgt_key_padding_mask, "tgt_is_causal",
                      tgt_is_causal.value_or(false)},
                     {"memory_mask", memory_mask, "memory_key_padding_mask", memory_key_padding_mask,
                      "memory_is_causal", memory_is_causal});
  const bool causal = is_causal_mask(tgt_mask, tgt_is_causal, tokens_of(tgt, options.layer()));
  auto x = tgt;
  for (size_t n = 0; n < layers->size(); ++n) {
    x = layers->at<TransformerDecoderLayerImpl>(n).forward(x, memory, tgt_mask, memory_mask,
                                                           tgt_key_padding_mask, memory_key_padding_mask,
                                                           causal, memory_is_causal);
  }
  return norm.is_empty() ? x : norm->forward(x);
}

}  // namespace attentive::compat
