#include <ATen/ops/zeros.h>

#include <attentive/functional/heads.h>
#include <attentive/modules/multi_head_attention.h>

#include "core/check.h"
#include "functional/problem_builder.h"
#include "modules/projection.h"

namespace attentive {
namespace {

constexpr const char* kWho = "MultiHeadAttention";

}  // namespace

MultiHeadAttentionImpl::MultiHeadAttentionImpl(MultiHeadAttentionOptions options_)
    : options(std::move(options_)) {
  build();
}

void MultiHeadAttentionImpl::reset() {
  check_positive(kWho, "d_in", options.d_in());
  check_positive(kWho, "d_out", options.d_out());
  check_heads(kWho, "d_out", options.d_out(), options.num_heads());
  check_probability(kWho, "dropout", options.dropout());
  check_module_options(kWho, options.attention(), options.context_length());
  check_head_extras(kWho, options.attention(), options.sinks());

  const auto projection = torch::nn::LinearOptions(options.d_in(), options.d_out()).bias(options.qkv_bias());
  W_query = register_module("W_query", torch::nn::Linear(projection));
  W_key = register_module("W_key", torch::nn::Linear(projection));
  W_value = register_module("W_value", torch::nn::Linear(projection));
  out_proj = register_module("out_proj", torch::nn::Linear(options.d_out(), options.d_out()));
  if (options.sinks()) sinks = register_parameter("sinks", at::zeros({options.num_heads()}));
}

void MultiHeadAttentionImpl::pretty_print(std::ostream& stream) const {
  stream << std::boolalpha << "attentive::MultiHeadAttention(d_in=" << options.d_in()
         << ", d_out=" << options.d_out() << ", context_length=" << options.context_length()
         << ", dropout=" << options.dropout() << ", num_heads=" << options.num_heads()
         << ", qkv_bias=" << options.qkv_bias();
  if (options.alibi()) stream << ", alibi=true";
  if (options.sinks()) stream << ", sinks=true";
  stream << ")";
}

at::Tensor MultiHeadAttentionImpl::forward(const at::Tensor& x, const Mask& mask) {
  return forward_with_weights(x, mask, Weights::None).first;
}

std::pair<at::Tensor, at::Tensor> MultiHeadAttentionImpl::forward_with_weights(const at::Tensor& x,
                                                                               const Mask& mask,
                                                                               Weights which) {
  check_sequence(kWho, "x", x, options.d_in(), W_query->weight);
  check_context(kWho, x.size(-2), options.context_length());
  const auto heads = [&](const torch::nn::Linear& layer) {
    return split_heads(project(layer, batched(x)), options.num_heads());
  };
  const auto result = attend(
      options.attention(), is_training() ? options.dropout() : 0.0, heads(W_query), heads(W_key),
      heads(W_value), head_extras(options.alibi(), sinks, options.num_heads(), x.device(), mask, which));
  return unbatched_like(x, project(out_proj, merge_heads(result.output)), result.weights);
}

}  // namespace attentive
