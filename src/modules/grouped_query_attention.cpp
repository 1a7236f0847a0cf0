#include <ATen/ops/zeros.h>

#include <attentive/modules/grouped_query_attention.h>

#include "modules/attend.h"
#include "modules/checks.h"
#include "modules/first_weights.h"
#include "modules/projection.h"

namespace attentive {

GroupedQueryAttentionImpl::GroupedQueryAttentionImpl(GroupedQueryAttentionOptions options_)
    : options(std::move(options_)) {
  build();
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

at::Tensor GroupedQueryAttentionImpl::forward(const at::Tensor& x, const Mask& mask) {
  return forward_with_weights(x, mask, Weights::None).first;
}

std::pair<at::Tensor, at::Tensor> GroupedQueryAttentionImpl::forward_with_weights(const at::Tensor& x,
                                                                                  const Mask& mask,
                                                                                  Weights which) {
  check_sequence(kName, "x", x, options.d_in(), W_query->weight);
  check_context(kName, x.size(-2), options.context_length());
  const auto heads = project_heads({W_query, W_key, W_value}, x, options.d_out() / options.num_heads());
  return project_out(out_proj, attend(*this, heads[0], heads[1], heads[2], mask, which), x);
}

}  // namespace attentive
