#include <attentive/modules/linear_attention.h>

#include "modules/checks.h"
#include "modules/first_weights.h"
#include "modules/projection.h"

namespace attentive {

LinearAttentionImpl::LinearAttentionImpl(LinearAttentionOptions options_) : options(std::move(options_)) {
  build();
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
