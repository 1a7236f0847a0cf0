#include <ATen/core/grad_mode.h>

#include <attentive/notebooks/self_attention_v2.h>

#include "modules/attend.h"
#include "modules/checks.h"
#include "modules/first_weights.h"
#include "modules/projection.h"

namespace attentive {
namespace {

void check_same_sizes(const SelfAttentionV1Impl& v1, const SelfAttentionV2Impl& v2) {
  TORCH_CHECK_VALUE(v1.options.d_in() == v2.options.d_in() && v1.options.d_out() == v2.options.d_out(),
                    "copy_weights: expected equal d_in and d_out, got SelfAttentionV1 (", v1.options.d_in(),
                    ", ", v1.options.d_out(), "), SelfAttentionV2 (", v2.options.d_in(), ", ",
                    v2.options.d_out(), ")");
}

}  // namespace

SelfAttentionV2Impl::SelfAttentionV2Impl(SelfAttentionV2Options options_) : options(std::move(options_)) {
  build();
}

void SelfAttentionV2Impl::reset() {
  check_positive(kName, "d_in", options.d_in());
  check_positive(kName, "d_out", options.d_out());
  check_attention_options(kName, options);

  const auto projection = torch::nn::LinearOptions(options.d_in(), options.d_out()).bias(options.qkv_bias());
  W_query = register_module("W_query", linear_layer(projection));
  W_key = register_module("W_key", linear_layer(projection));
  W_value = register_module("W_value", linear_layer(projection));
}

at::Tensor SelfAttentionV2Impl::forward(const at::Tensor& x, const Mask& mask) {
  return forward_with_weights(x, mask, Weights::None).first;
}

std::pair<at::Tensor, at::Tensor> SelfAttentionV2Impl::forward_with_weights(const at::Tensor& x,
                                                                            const Mask& mask, Weights which) {
  check_sequence(kName, "x", x, options.d_in(), W_query->weight);
  return attend(*this, project(W_query, x), project(W_key, x), project(W_value, x), mask, which);
}

void copy_weights(const SelfAttentionV1Impl& from, SelfAttentionV2Impl& to) {
  check_same_sizes(from, to);
  const at::NoGradGuard no_grad;
  const auto copy = [](const at::Tensor& matrix, torch::nn::Linear& layer) {
    layer->weight.copy_(matrix.t());
    if (layer->bias.defined()) layer->bias.zero_();
  };
  copy(from.W_query, to.W_query);
  copy(from.W_key, to.W_key);
  copy(from.W_value, to.W_value);
}

void copy_weights(const SelfAttentionV2Impl& from, SelfAttentionV1Impl& to) {
  check_same_sizes(to, from);
  TORCH_CHECK_VALUE(
      !from.options.qkv_bias(),
      "copy_weights: expected a SelfAttentionV2 without biases, for which SelfAttentionV1 has no "
      "place, got qkv_bias = true");
  const at::NoGradGuard no_grad;
  to.W_query.copy_(from.W_query->weight.t());
  to.W_key.copy_(from.W_key->weight.t());
  to.W_value.copy_(from.W_value->weight.t());
}

}  // namespace attentive
