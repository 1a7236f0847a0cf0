#include <limits>

#include <ATen/ops/full.h>
#include <torch/nn/init.h>

#include <attentive/compat/transformer.h>

#include "compat/inputs.h"
#include "modules/checks.h"
#include "modules/first_weights.h"

namespace attentive::compat {
namespace {

// Deep copies of a layer, as in Python: with its weights, their requires_grad, and its training mode.
template <class Layer>
torch::nn::ModuleList copies_of(const Layer& layer, int64_t count) {
  torch::nn::ModuleList copies;
  const auto source = layer->parameters();
  for (int64_t n = 0; n < count; ++n) {
    const auto copy = layer->clone();
    const auto parameters = copy->parameters();
    for (size_t i = 0; i < source.size(); ++i) parameters[i].set_requires_grad(source[i].requires_grad());
    copies->push_back(copy);
  }
  return copies;
}

// The length of a sequence: (T, E), or (N, T, E) or (T, N, E) by batch_first.
int64_t tokens_of(const at::Tensor& x, const TransformerLayerOptions& options) {
  return x.size(x.dim() == 3 && options.batch_first() ? 1 : 0);
}

// Throws unless a norm after layers of these options has their features.
void check_last_norm(const char* caller, const TransformerLayerOptions& options,
                     const std::optional<LayerNormOptions>& norm) {
  TORCH_CHECK_VALUE(!norm || norm->features() == options.d_model(), caller,
                    ": expected a norm of d_model = ", options.d_model(), " features, got ",
                    norm ? norm->features() : 0);
}

}  // namespace

TransformerEncoderImpl::TransformerEncoderImpl(const TransformerEncoderLayer& encoder_layer,
                                               int64_t num_layers, LayerNorm norm_)
    : options(encoder_layer->options, num_layers) {
  if (!norm_.is_empty()) options.norm(norm_->options);
  detail::build_module(kName, [&] { stack(encoder_layer, norm_); });
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

TransformerDecoderImpl::TransformerDecoderImpl(const TransformerDecoderLayer& decoder_layer,
                                               int64_t num_layers, LayerNorm norm_)
    : options(decoder_layer->options, num_layers) {
  if (!norm_.is_empty()) options.norm(norm_->options);
  detail::build_module(kName, [&] { stack(decoder_layer, norm_); });
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
