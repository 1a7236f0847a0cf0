#include <attentive/functional/heads.h>
#include <attentive/modules/linear_attention.h>

#include "core/check.h"
#include "modules/projection.h"

namespace attentive {
namespace {

constexpr const char* kWho = "LinearAttention";

}  // namespace

LinearAttentionImpl::LinearAttentionImpl(LinearAttentionOptions options_) : options(std::move(options_)) {
  build();
}

void LinearAttentionImpl::reset() {
  check_positive(kWho, "d_in", options.d_in());
  check_positive(kWho, "d_out", options.d_out());
  check_heads(kWho, "d_out", options.d_out(), options.num_heads());
  check_linear_attention_call(kWho, options.attention());

  const auto projection = torch::nn::LinearOptions(options.d_in(), options.d_out()).bias(options.qkv_bias());
  W_query = register_module("W_query", torch::nn::Linear(projection));
  W_key = register_module("W_key", torch::nn::Linear(projection));
  W_value = register_module("W_value", torch::nn::Linear(projection));
  out_proj = register_module("out_proj", torch::nn::Linear(options.d_out(), options.d_out()));
}

void LinearAttentionImpl::pretty_print(std::ostream& stream) const {
  stream << std::boolalpha << "attentive::LinearAttention(d_in=" << options.d_in()
         << ", d_out=" << options.d_out() << ", num_heads=" << options.num_heads()
         << ", qkv_bias=" << options.qkv_bias() << ", causal=" << to_string(options.attention().causal)
         << ")";
}

at::Tensor LinearAttentionImpl::forward(const at::Tensor& x, const Mask& mask) {
  check_sequence(kWho, "x", x, options.d_in(), W_query->weight);
  if (x.dim() == 2) return forward(x.unsqueeze(0), mask).squeeze(0);
  const auto heads = [&](const torch::nn::Linear& layer) {
    return split_heads(project(layer, x), options.num_heads());
  };
  const auto context =
      linear_attention(heads(W_query), heads(W_key), heads(W_value), options.attention(), mask);
  return project(out_proj, merge_heads(context));
}

}  // namespace attentive
