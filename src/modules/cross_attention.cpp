#include <attentive/modules/cross_attention.h>

#include "modules/attend.h"
#include "modules/checks.h"
#include "modules/first_weights.h"
#include "modules/projection.h"

namespace attentive {

CrossAttentionImpl::CrossAttentionImpl(CrossAttentionOptions options_) : options(std::move(options_)) {
  build();
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

at::Tensor CrossAttentionImpl::forward(const at::Tensor& x, const at::Tensor& memory, const Mask& mask) {
  return forward_with_weights(x, memory, mask, Weights::None).first;
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

}  // namespace attentive
