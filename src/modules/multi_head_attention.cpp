#include <ATen/ops/zeros.h>

#include <attentive/modules/multi_head_attention.h>

#include "modules/attend.h"
#include "modules/checks.h"
#include "modules/first_weights.h"
#include "modules/projection.h"

namespace attentive {

void MultiHeadAttentionImpl::reset() {
  check_positive(kName, "d_in", options.d_in());
  check_positive(kName, "d_out", options.d_out());
  check_heads(kName, "d_out", options.d_out(), options.num_heads());
  check_attention_options(kName, options);
  TORCH_CHECK_VALUE(!options.alibi() || !std::holds_alternative<DistanceBiasOptions>(options.position_bias()),
                    kName, ": expected alibi or a position_bias of learned slopes (DistanceBias), got both");

  const auto projection = torch::nn::LinearOptions(options.d_in(), options.d_out()).bias(options.qkv_bias());
  W_query = register_module("W_query", linear_layer(projection));
  W_key = register_module("W_key", linear_layer(projection));
  W_value = register_module("W_value", linear_layer(projection));
  out_proj = register_module("out_proj", linear_layer(options.d_out(), options.d_out()));
  if (options.sinks()) sinks = register_parameter("sinks", at::zeros({options.num_heads()}));
  position_bias = make_position_bias(kName, options.position_bias(), options.num_heads());
  if (position_bias) register_module("position_bias", position_bias);
}

std::pair<at::Tensor, at::Tensor> MultiHeadAttentionImpl::forward_with_weights(const at::Tensor& x,
                                                                               const Mask& mask,
                                                                               Weights which) {
  check_sequence(kName, "x", x, options.d_in(), W_query->weight);
  check_context(kName, x.size(-2), options.context_length());
  check_position_bias_tokens(kName, options.position_bias(), x.size(-2));
  const auto head_dim = options.d_out() / options.num_heads();
  const auto heads = project_heads({W_query, W_key, W_value}, x, head_dim);
  return project_out(out_proj, attend(*this, heads[0], heads[1], heads[2], mask, which), x);
}

void GroupedQueryAttentionImpl::reset() {
  check_positive(kName, "d_in", options.d_in());
  check_positive(kName, "d_out", options.d_out());
  check_heads(kName, "d_out", options.d_out(), options.num_heads());
  check_heads(kName, "num_heads", options.num_heads(), options.num_kv_heads(), "num_kv_heads");
  check_attention_options(kName, options);

  const int64_t kv_features = options.num_kv_heads() * (options.d_out() / options.num_heads());
  const auto projection = [&](int64_t features) {
    return torch::nn::LinearOptions(options.d_in(), features).bias(options.qkv_bias());
  };
  W_key = register_module("W_key", linear_layer(projection(kv_features)));
  W_value = register_module("W_value", linear_layer(projection(kv_features)));
  W_query = register_module("W_query", linear_layer(projection(options.d_out())));
  out_proj = register_module(
      "out_proj",
      linear_layer(torch::nn::LinearOptions(options.d_out(), options.d_out()).bias(options.out_bias())));
  if (options.sinks()) sinks = register_parameter("sinks", at::zeros({options.num_heads()}));
}

std::pair<at::Tensor, at::Tensor> GroupedQueryAttentionImpl::forward_with_weights(const at::Tensor& x,
                                                                                  const Mask& mask,
                                                                                  Weights which) {
  check_sequence(kName, "x", x, options.d_in(), W_query->weight);
  check_context(kName, x.size(-2), options.context_length());
  const auto heads = project_heads({W_query, W_key, W_value}, x, options.d_out() / options.num_heads());
  return project_out(out_proj, attend(*this, heads[0], heads[1], heads[2], mask, which), x);
}

void CrossAttentionImpl::reset() {
  check_positive(kName, "d_in", options.d_in());
  check_positive(kName, "d_kv", options.d_kv());
  check_positive(kName, "d_out", options.d_out());
  check_heads(kName, "d_out", options.d_out(), options.num_heads());
  check_attention_options(kName, options);

  const auto projection = [&](int64_t features) {
    return linear_layer(torch::nn::LinearOptions(features, options.d_out()).bias(options.qkv_bias()));
  };
  W_query = register_module("W_query", projection(options.d_in()));
  W_key = register_module("W_key", projection(options.d_kv()));
  W_value = register_module("W_value", projection(options.d_kv()));
  out_proj = register_module("out_proj", linear_layer(options.d_out(), options.d_out()));
}

std::pair<at::Tensor, at::Tensor> CrossAttentionImpl::forward_with_weights(const at::Tensor& x,
                                                                           const at::Tensor& memory,
                                                                           const Mask& mask, Weights which) {
  check_sequence(kName, "x", x, options.d_in(), W_query->weight);
  check_sequence(kName, "memory", memory, options.d_kv(), W_key->weight);
  check_same_batch(kName, "memory", memory, "x", x);
  const auto heads = [&](const torch::nn::Linear& layer, const at::Tensor& sequence) {
    return project_heads(layer, sequence, options.d_out() / options.num_heads());
  };
  const auto attended =
      attend(*this, heads(W_query, x), heads(W_key, memory), heads(W_value, memory), mask, which);
  return project_out(out_proj, attended, x);
}

void LinearAttentionImpl::reset() {
  check_positive(kName, "d_in", options.d_in());
  check_positive(kName, "d_out", options.d_out());
  check_heads(kName, "d_out", options.d_out(), options.num_heads());
  check_linear_attention_call(kName, options.attention());

  const auto projection = torch::nn::LinearOptions(options.d_in(), options.d_out()).bias(options.qkv_bias());
  W_query = register_module("W_query", linear_layer(projection));
  W_key = register_module("W_key", linear_layer(projection));
  W_value = register_module("W_value", linear_layer(projection));
  out_proj = register_module("out_proj", linear_layer(options.d_out(), options.d_out()));
}

at::Tensor LinearAttentionImpl::forward(const at::Tensor& x, const Mask& mask) {
  check_sequence(kName, "x", x, options.d_in(), W_query->weight);
  const auto heads = [&](const torch::nn::Linear& layer) {
    return project_heads(layer, x, options.d_out() / options.num_heads());
  };
  const auto context =
      linear_attention(heads(W_query), heads(W_key), heads(W_value), options.attention(), mask, this);
  return project_out(out_proj, {context, /*weights=*/{}}, x).first;
}

}  // namespace attentive
