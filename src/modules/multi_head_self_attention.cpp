#include <ATen/ops/dropout.h>

#include <attentive/functional/heads.h>
#include <attentive/modules/multi_head_self_attention.h>

#include "core/check.h"
#include "functional/problem_builder.h"
#include "modules/projection.h"

namespace attentive {
namespace {

constexpr const char* kWho = "MultiHeadSelfAttention";

}  // namespace

MultiHeadSelfAttentionImpl::MultiHeadSelfAttentionImpl(MultiHeadSelfAttentionOptions options_)
    : options(std::move(options_)) {
  build();
}

void MultiHeadSelfAttentionImpl::reset() {
  check_positive(kWho, "d_model", options.d_model());
  check_heads(kWho, "d_model", options.d_model(), options.num_heads());
  check_probability(kWho, "dropout", options.dropout());
  check_module_options(kWho, options.attention(), /*context_length=*/0);

  const auto projection = torch::nn::LinearOptions(options.d_model(), options.d_model()).bias(false);
  W_q = register_module("W_q", torch::nn::Linear(projection));
  W_k = register_module("W_k", torch::nn::Linear(projection));
  W_v = register_module("W_v", torch::nn::Linear(projection));
  W_o = register_module("W_o", torch::nn::Linear(projection));
}

void MultiHeadSelfAttentionImpl::pretty_print(std::ostream& stream) const {
  stream << "attentive::MultiHeadSelfAttention(d_model=" << options.d_model()
         << ", num_heads=" << options.num_heads() << ", dropout=" << options.dropout() << ")";
}

std::pair<at::Tensor, at::Tensor> MultiHeadSelfAttentionImpl::forward(const at::Tensor& x, const Mask& mask) {
  return forward_with_weights(x, mask, Weights::Dropped);
}

std::pair<at::Tensor, at::Tensor> MultiHeadSelfAttentionImpl::forward_with_weights(const at::Tensor& x,
                                                                                   const Mask& mask,
                                                                                   Weights which) {
  check_sequence(kWho, "x", x, options.d_model(), W_q->weight);
  const auto heads = [&](const torch::nn::Linear& layer) {
    return split_heads(project(layer, batched(x)), options.num_heads());
  };
  const auto result = attend(options.attention(), is_training() ? options.dropout() : 0.0, heads(W_q),
                             heads(W_k), heads(W_v), mask, which);
  // Drawn after the dropout of the weights, from the same generator: the order of the notebook.
  const auto y = at::dropout(project(W_o, merge_heads(result.output)), options.dropout(), is_training());
  return unbatched_like(x, y, result.weights);
}

}  // namespace attentive
