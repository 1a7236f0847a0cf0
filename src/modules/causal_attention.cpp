#include <attentive/modules/causal_attention.h>

#include "core/check.h"
#include "functional/problem_builder.h"
#include "modules/projection.h"

namespace attentive {
namespace {

constexpr const char* kWho = "CausalAttention";

}  // namespace

CausalAttentionImpl::CausalAttentionImpl(CausalAttentionOptions options_) : options(std::move(options_)) {
  build();
}

void CausalAttentionImpl::reset() {
  check_positive(kWho, "d_in", options.d_in());
  check_positive(kWho, "d_out", options.d_out());
  check_probability(kWho, "dropout", options.dropout());
  check_module_options(kWho, options.attention(), options.context_length());

  const auto projection = torch::nn::LinearOptions(options.d_in(), options.d_out()).bias(options.qkv_bias());
  W_query = register_module("W_query", torch::nn::Linear(projection));
  W_key = register_module("W_key", torch::nn::Linear(projection));
  W_value = register_module("W_value", torch::nn::Linear(projection));
}

void CausalAttentionImpl::pretty_print(std::ostream& stream) const {
  stream << std::boolalpha << "attentive::CausalAttention(d_in=" << options.d_in()
         << ", d_out=" << options.d_out() << ", context_length=" << options.context_length()
         << ", dropout=" << options.dropout() << ", qkv_bias=" << options.qkv_bias() << ")";
}

at::Tensor CausalAttentionImpl::forward(const at::Tensor& x, const Mask& mask) {
  return forward_with_weights(x, mask, Weights::None).first;
}

std::pair<at::Tensor, at::Tensor> CausalAttentionImpl::forward_with_weights(const at::Tensor& x,
                                                                            const Mask& mask, Weights which) {
  check_sequence(kWho, "x", x, options.d_in(), W_query->weight);
  check_context(kWho, x.size(-2), options.context_length());
  const auto result = attend(options.attention(), is_training() ? options.dropout() : 0.0,
                             project(W_query, x), project(W_key, x), project(W_value, x), mask, which);
  return {result.output, result.weights};
}

}  // namespace attentive
