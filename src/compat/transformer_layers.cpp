#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/zeros.h>

#include <attentive/compat/transformer_layers.h>

#include "compat/inputs.h"
#include "modules/checks.h"
#include "modules/first_weights.h"
#include "modules/projection.h"

namespace attentive::compat {

void LayerNormImpl::reset() {
  check_positive(kName, "features", options.features());
  check_eps(kName, options.eps());
  weight = register_parameter("weight", at::ones({options.features()}));
  if (options.bias()) bias = register_parameter("bias", at::zeros({options.features()}));
}

at::Tensor LayerNormImpl::forward(const at::Tensor& x) {
  check_norm_input(kName, x, options.features(), weight);
  return at::layer_norm(x, {options.features()}, weight, bias, options.eps());
}

namespace {

at::Tensor activate(const Activation& activation, const at::Tensor& x) {
  if (std::holds_alternative<torch::enumtype::kReLU>(activation)) return at::relu(x);
  if (std::holds_alternative<torch::enumtype::kGELU>(activation)) return at::gelu(x);
  return std::get<std::function<at::Tensor(const at::Tensor&)>>(activation)(x);
}

void check_layer_options(const char* caller, const TransformerLayerOptions& options) {
  check_positive(caller, "d_model", options.d_model());
  check_heads(caller, "d_model", options.d_model(), options.nhead(), "nhead");
  check_positive(caller, "dim_feedforward", options.dim_feedforward());
  check_probability(caller, "dropout", options.dropout());
  const auto* function = std::get_if<std::function<at::Tensor(const at::Tensor&)>>(&options.activation());
  TORCH_CHECK_VALUE(!function || *function, caller,
                    ": expected activation to be callable, got an empty function");
}

MultiheadAttentionOptions attention_options(const TransformerLayerOptions& options) {
  return MultiheadAttentionOptions(options.d_model(), options.nhead())
      .dropout(options.dropout())
      .bias(options.bias())
      .batch_first(options.batch_first());
}

// linear2(dropout(activation(linear1(x))))
at::Tensor feed_forward(const TransformerLayerOptions& options, const at::Tensor& x,
                        torch::nn::Linear& linear1, torch::nn::Dropout& dropout, torch::nn::Linear& linear2) {
  return project(linear2, dropout->forward(activate(options.activation(), project(linear1, x))));
}

// x + block(norm(x)) if norm_first, else norm(x + block(x)).
at::Tensor residual(bool norm_first, const at::Tensor& x, LayerNorm& norm,
                    const std::function<at::Tensor(const at::Tensor&)>& block) {
  return norm_first ? x + block(norm->forward(x)) : norm->forward(x + block(x));
}

}  // namespace

LayerNormOptions norm_options(const TransformerLayerOptions& options) {
  return LayerNormOptions(options.d_model()).eps(options.layer_norm_eps()).bias(options.bias());
}

void check_encoder_call(const char* caller, const TransformerLayerOptions& options,
                        const at::Tensor& parameter, const at::Tensor& src, const CallMasks& masks) {
  check_sequences(caller, "src", src, options.d_model(), options.batch_first());
  check_input(caller, "src", src, src.dim(), options.d_model(), parameter);
  check_masks(caller, masks, mask_sizes(src, src, options.nhead(), options.batch_first()));
}

void check_decoder_call(const char* caller, const TransformerLayerOptions& options,
                        const at::Tensor& parameter, const at::Tensor& tgt, const char* memory_name,
                        const at::Tensor& memory, const CallMasks& masks, const CallMasks& memory_masks) {
  check_sequences(caller, "tgt", tgt, options.d_model(), options.batch_first());
  check_input(caller, "tgt", tgt, tgt.dim(), options.d_model(), parameter);
  check_input(caller, memory_name, memory, tgt.dim(), options.d_model(), parameter);
  const auto tgt_sizes = mask_sizes(tgt, tgt, options.nhead(), options.batch_first());
  const int64_t batch_dim = options.batch_first() ? 0 : 1;
  TORCH_CHECK_VALUE(!tgt_sizes.batched || memory.size(batch_dim) == tgt_sizes.batch, caller, ": expected ",
                    memory_name, " of batch ", tgt_sizes.batch, " like tgt, got ",
                    shape_string(memory.sizes()));
  check_masks(caller, masks, tgt_sizes);
  check_masks(caller, memory_masks, mask_sizes(tgt, memory, options.nhead(), options.batch_first()));
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
    return dropout1->forward(output);
  });
  return residual(options.norm_first(), x, norm2, [&](const at::Tensor& y) {
    return dropout2->forward(feed_forward(options, y, linear1, dropout, linear2));
  });
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
    return dropout1->forward(output);
  });
  x = residual(options.norm_first(), x, norm2, [&](const at::Tensor& y) {
    const auto output =
        std::get<0>(multihead_attn->forward(y, memory, memory, memory_key_padding_mask,
                                            /*need_weights=*/false, memory_mask, true, memory_is_causal));
    return dropout2->forward(output);
  });
  return residual(options.norm_first(), x, norm3, [&](const at::Tensor& y) {
    return dropout3->forward(feed_forward(options, y, linear1, dropout, linear2));
  });
}

}  // namespace attentive::compat
