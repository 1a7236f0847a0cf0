#include <attentive/notebooks/causal_attention.h>

#include "modules/attend.h"
#include "modules/checks.h"
#include "modules/first_weights.h"
#include "modules/projection.h"

namespace attentive {

CausalAttentionImpl::CausalAttentionImpl(CausalAttentionOptions options_) : options(std::move(options_)) {
  build();
}

void CausalAttentionImpl::reset() {
  check_positive(kName, "d_in", options.d_in());
  check_positive(kName, "d_out", options.d_out());
  check_attention_options(kName, options);

  const auto projection = torch::nn::LinearOptions(options.d_in(), options.d_out()).bias(options.qkv_bias());
  W_query = register_module("W_query", linear_layer(projection));
  W_key = register_module("W_key", linear_layer(projection));
  W_value = register_module("W_value", linear_layer(projection));
}

at::Tensor CausalAttentionImpl::forward(const at::Tensor& x, const Mask& mask) {
  return forward_with_weights(x, mask, Weights::None).first;
}

std::pair<at::Tensor, at::Tensor> CausalAttentionImpl::forward_with_weights(const at::Tensor& x,
                                                                            const Mask& mask, Weights which) {
  check_sequence(kName, "x", x, options.d_in(), W_query->weight);
  check_context(kName, x.size(-2), options.context_length());
  return attend(*this, project(W_query, x), project(W_key, x), project(W_value, x), mask, which);
}

}  // namespace attentive
