#include <limits>

#include <ATen/ops/full.h>
#include <torch/nn/init.h>

#include <attentive/compat/transformer.h>

#include "compat/transformer_blocks.h"
#include "modules/first_weights.h"

namespace attentive::compat {

TransformerImpl::TransformerImpl(TransformerOptions options_) : options(std::move(options_)) {
  build();
}

void TransformerImpl::reset() {
  const auto& layer = options.layer();
  encoder = register_module(
      "encoder",
      TransformerEncoder(
          TransformerEncoderOptions(layer, options.num_encoder_layers()).norm(norm_options(layer))));
  decoder = register_module(
      "decoder",
      TransformerDecoder(
          TransformerDecoderOptions(layer, options.num_decoder_layers()).norm(norm_options(layer))));
  if (draws_first_weights()) reset_parameters();
}

void TransformerImpl::reset_parameters() {
  for (auto& parameter : parameters()) {
    if (parameter.dim() > 1) torch::nn::init::xavier_uniform_(parameter);
  }
}

at::Tensor TransformerImpl::forward(const at::Tensor& src, const at::Tensor& tgt, const at::Tensor& src_mask,
                                    const at::Tensor& tgt_mask, const at::Tensor& memory_mask,
                                    const at::Tensor& src_key_padding_mask,
                                    const at::Tensor& tgt_key_padding_mask,
                                    const at::Tensor& memory_key_padding_mask,
                                    std::optional<bool> src_is_causal, std::optional<bool> tgt_is_causal,
                                    bool memory_is_causal) {
  // Everything is checked before the encoder runs, under the names of this function's arguments.
  const auto& parameter = encoder->layers->at<TransformerEncoderLayerImpl>(0).linear1->weight;
  check_encoder_call(kName, options.layer(), parameter, src,
                     {"src_mask", src_mask, "src_key_padding_mask", src_key_padding_mask, "src_is_causal",
                      src_is_causal.value_or(false)});
  check_decoder_call(kName, options.layer(), parameter, tgt, "src", src,
                     {"tgt_mask", tgt_mask, "tgt_key_padding_mask", tgt_key_padding_mask, "tgt_is_causal",
                      tgt_is_causal.value_or(false)},
                     {"memory_mask", memory_mask, "memory_key_padding_mask", memory_key_padding_mask,
                      "memory_is_causal", memory_is_causal});
  const auto memory = encoder->forward(src, src_mask, src_key_padding_mask, src_is_causal);
  return decoder->forward(tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask,
                          tgt_is_causal, memory_is_causal);
}

at::Tensor TransformerImpl::generate_square_subsequent_mask(int64_t size, at::TensorOptions options) {
  TORCH_CHECK_VALUE(size >= 0, kName, ": expected a size >= 0, got ", size);
  return at::full({size, size}, -std::numeric_limits<double>::infinity(), options).triu(1);
}

}  // namespace attentive::compat
