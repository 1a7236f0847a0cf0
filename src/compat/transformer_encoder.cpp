#include <attentive/compat/transformer_encoder.h>

#include "compat/transformer_blocks.h"
#include "modules/checks.h"

namespace attentive::compat {

TransformerEncoderImpl::TransformerEncoderImpl(const TransformerEncoderLayer& encoder_layer,
                                               int64_t num_layers, LayerNorm norm_)
    : options(encoder_layer->options, num_layers) {
  if (!norm_.is_empty()) options.norm(norm_->options);
  detail::build_module(kName, [&] { stack(encoder_layer, norm_); });
}

TransformerEncoderImpl::TransformerEncoderImpl(TransformerEncoderOptions options_)
    : options(std::move(options_)) {
  build();
}

void TransformerEncoderImpl::reset() {
  const TransformerEncoderLayer layer(options.layer());
  stack(layer, options.norm() ? LayerNorm(*options.norm()) : LayerNorm(nullptr));
}

void TransformerEncoderImpl::stack(const TransformerEncoderLayer& layer, LayerNorm last) {
  check_count(kName, "num_layers", options.num_layers());
  check_last_norm(kName, options.layer(), options.norm());
  layers = register_module("layers", copies_of(layer, options.num_layers()));
  if (!last.is_empty()) norm = register_module("norm", std::move(last));
}

at::Tensor TransformerEncoderImpl::forward(const at::Tensor& src, const at::Tensor& mask,
                                           const at::Tensor& src_key_padding_mask,
                                           std::optional<bool> is_causal) {
  auto& first = layers->at<TransformerEncoderLayerImpl>(0);
  check_encoder_call(
      kName, options.layer(), first.linear1->weight, src,
      {"mask", mask, "src_key_padding_mask", src_key_padding_mask, "is_causal", is_causal.value_or(false)});
  const bool causal = is_causal_mask(mask, is_causal, tokens_of(src, options.layer()));
  auto x = src;
  for (size_t n = 0; n < layers->size(); ++n) {
    x = layers->at<TransformerEncoderLayerImpl>(n).forward(x, mask, src_key_padding_mask, causal);
  }
  return norm.is_empty() ? x : norm->forward(x);
}

}  // namespace attentive::compat
