#include <vector>

#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>

#include <attentive/notebooks/multi_head_attention_wrapper.h>

#include "modules/attend.h"
#include "modules/checks.h"

namespace attentive {

MultiHeadAttentionWrapperImpl::MultiHeadAttentionWrapperImpl(MultiHeadAttentionWrapperOptions options_)
    : options(std::move(options_)) {
  build();
}

void MultiHeadAttentionWrapperImpl::reset() {
  check_positive(kName, "d_in", options.d_in());
  check_positive(kName, "d_out", options.d_out());
  check_count(kName, "num_heads", options.num_heads());
  check_attention_options(kName, options);

  const auto head = CausalAttentionOptions(options.d_in(), options.d_out(), options.context_length(),
                                           options.dropout(), options.qkv_bias())
                        .attention(options.attention());
  heads = register_module("heads", torch::nn::ModuleList());
  for (int64_t n = 0; n < options.num_heads(); ++n) heads->push_back(CausalAttention(head));
}

at::Tensor MultiHeadAttentionWrapperImpl::forward(const at::Tensor& x, const Mask& mask) {
  return forward_with_weights(x, mask, Weights::None).first;
}

std::pair<at::Tensor, at::Tensor> MultiHeadAttentionWrapperImpl::forward_with_weights(const at::Tensor& x,
                                                                                      const Mask& mask,
                                                                                      Weights which) {
  check_sequence(kName, "x", x, options.d_in(), heads->at<CausalAttentionImpl>(0).W_query->weight);
  check_context(kName, x.size(-2), options.context_length());
  std::vector<at::Tensor> outputs, weights;
  for (size_t n = 0; n < heads->size(); ++n) {
    auto [output, w] = heads->at<CausalAttentionImpl>(n).forward_with_weights(x, mask, which);
    outputs.push_back(std::move(output));
    weights.push_back(std::move(w));
  }
  return {at::cat(outputs, -1), which == Weights::None ? at::Tensor() : at::stack(weights, -3)};
}

}  // namespace attentive
