#include <attentive/functional/heads.h>
#include <attentive/modules/cross_attention.h>

#include "core/check.h"
#include "functional/problem_builder.h"
#include "modules/projection.h"

namespace attentive {
namespace {

constexpr const char* kWho = "CrossAttention";

}  // namespace

CrossAttentionImpl::CrossAttentionImpl(CrossAttentionOptions options_) : options(std::move(options_)) {
  build();
}

void CrossAttentionImpl::reset() {
  check_positive(kWho, "d_in", options.d_in());
  check_positive(kWho, "d_kv", options.d_kv());
  check_positive(kWho, "d_out", options.d_out());
  check_heads(kWho, "d_out", options.d_out(), options.num_heads());
  check_probability(kWho, "dropout", options.dropout());
  check_module_options(kWho, options.attention(), /*context_length=*/0);

  const auto projection = [&](int64_t features) {
    return torch::nn::Linear(torch::nn::LinearOptions(features, options.d_out()).bias(options.qkv_bias()));
  };
  W_query = register_module("W_query", projection(options.d_in()));
  W_key = register_module("W_key", projection(options.d_kv()));
  W_value = register_module("W_value", projection(options.d_kv()));
  out_proj = register_module("out_proj", torch::nn::Linear(options.d_out(), options.d_out()));
}

void CrossAttentionImpl::pretty_print(std::ostream& stream) const {
  stream << std::boolalpha << "attentive::CrossAttention(d_in=" << options.d_in()
         << ", d_kv=" << options.d_kv() << ", d_out=" << options.d_out() << ", dropout=" << options.dropout()
         << ", num_heads=" << options.num_heads() << ", qkv_bias=" << options.qkv_bias() << ")";
}

at::Tensor CrossAttentionImpl::forward(const at::Tensor& x, const at::Tensor& memory, const Mask& mask) {
  return forward_with_weights(x, memory, mask, Weights::None).first;
}

std::pair<at::Tensor, at::Tensor> CrossAttentionImpl::forward_with_weights(const at::Tensor& x,
                                                                           const at::Tensor& memory,
                                                                           const Mask& mask, Weights which) {
  check_sequence(kWho, "x", x, options.d_in(), W_query->weight);
  check_sequence(kWho, "memory", memory, options.d_kv(), W_key->weight);
  check_same_batch(kWho, "memory", memory, "x", x);
  const auto heads = [&](const torch::nn::Linear& layer, const at::Tensor& sequence) {
    return split_heads(project(layer, batched(sequence)), options.num_heads());
  };
  const auto result = attend(options.attention(), is_training() ? options.dropout() : 0.0, heads(W_query, x),
                             heads(W_key, memory), heads(W_value, memory), mask, which);
  return unbatched_like(x, project(out_proj, merge_heads(result.output)), result.weights);
}

}  // namespace attentive
