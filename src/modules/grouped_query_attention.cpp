#include <ATen/ops/zeros.h>

#include <attentive/functional/heads.h>
#include <attentive/modules/grouped_query_attention.h>

#include "core/check.h"
#include "functional/problem_builder.h"
#include "modules/projection.h"

namespace attentive {
namespace {

constexpr const char* kWho = "GroupedQueryAttention";

}  // namespace

GroupedQueryAttentionImpl::GroupedQueryAttentionImpl(GroupedQueryAttentionOptions options_)
    : options(std::move(options_)) {
  build();
}

void GroupedQueryAttentionImpl::reset() {
  check_positive(kWho, "d_in", options.d_in());
  check_positive(kWho, "d_out", options.d_out());
  check_heads(kWho, "d_out", options.d_out(), options.num_heads());
  check_positive(kWho, "num_kv_groups", options.num_kv_groups());
  TORCH_CHECK_VALUE(options.num_heads() % options.num_kv_groups() == 0, kWho,
                    ": expected num_kv_groups to divide num_heads = ", options.num_heads(), ", got ",
                    options.num_kv_groups());
  check_probability(kWho, "dropout", options.dropout());
  check_module_options(kWho, options.attention(), options.context_length());
  check_head_extras(kWho, options.attention(), options.sinks());

  const int64_t kv_features = options.num_kv_groups() * (options.d_out() / options.num_heads());
  const auto projection = [&](int64_t features) {
    return torch::nn::LinearOptions(options.d_in(), features).bias(options.qkv_bias());
  };
  W_key = register_module("W_key", torch::nn::Linear(projection(kv_features)));
  W_value = register_module("W_value", torch::nn::Linear(projection(kv_features)));
  W_query = register_module("W_query", torch::nn::Linear(projection(options.d_out())));
  out_proj = register_module(
      "out_proj",
      torch::nn::Linear(torch::nn::LinearOptions(options.d_out(), options.d_out()).bias(options.out_bias())));
  if (options.sinks()) sinks = register_parameter("sinks", at::zeros({options.num_heads()}));
}

void GroupedQueryAttentionImpl::pretty_print(std::ostream& stream) const {
  stream << std::boolalpha << "attentive::GroupedQueryAttention(d_in=" << options.d_in()
         << ", d_out=" << options.d_out() << ", context_length=" << options.context_length()
         << ", dropout=" << options.dropout() << ", num_heads=" << options.num_heads()
         << ", num_kv_groups=" << options.num_kv_groups() << ", qkv_bias=" << options.qkv_bias()
         << ", out_bias=" << options.out_bias() << ", alibi=" << options.alibi()
         << ", sinks=" << options.sinks() << ")";
}

at::Tensor GroupedQueryAttentionImpl::forward(const at::Tensor& x, const Mask& mask) {
  return forward_with_weights(x, mask, Weights::None).first;
}

std::pair<at::Tensor, at::Tensor> GroupedQueryAttentionImpl::forward_with_weights(const at::Tensor& x,
                                                                                  const Mask& mask,
                                                                                  Weights which) {
  check_sequence(kWho, "x", x, options.d_in(), W_query->weight);
  check_context(kWho, x.size(-2), options.context_length());
  const auto heads = [&](const torch::nn::Linear& layer, int64_t count) {
    return split_heads(project(layer, batched(x)), count);
  };
  const auto result = attend(
      options.attention(), is_training() ? options.dropout() : 0.0, heads(W_query, options.num_heads()),
      heads(W_key, options.num_kv_groups()), heads(W_value, options.num_kv_groups()),
      head_extras(options.alibi(), sinks, options.num_heads(), x.device(), mask, which));
  return unbatched_like(x, project(out_proj, merge_heads(result.output)), result.weights);
}

}  // namespace attentive
