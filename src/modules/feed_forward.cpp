#include <torch/nn/modules/activation.h>

#include <attentive/modules/feed_forward.h>

#include "functional/gelu.h"
#include "modules/checks.h"
#include "modules/projection.h"

namespace attentive {

FeedForwardImpl::FeedForwardImpl(FeedForwardOptions options_) : options(options_) {
  build();
}

void FeedForwardImpl::reset() {
  check_positive(kName, "emb_dim", options.emb_dim());
  check_positive(kName, "hidden_dim", options.hidden_dim());
  const auto linear = [&](int64_t from, int64_t to) {
    return torch::nn::Linear(torch::nn::LinearOptions(from, to).bias(options.bias()));
  };
  layers = register_module("layers", torch::nn::Sequential());
  layers->push_back(linear(options.emb_dim(), options.hidden_dim()));
  layers->push_back(torch::nn::GELU(torch::nn::GELUOptions().approximate("tanh")));
  layers->push_back(linear(options.hidden_dim(), options.emb_dim()));
}

torch::nn::Linear FeedForwardImpl::layer(size_t index) const {
  return torch::nn::Linear(layers->ptr<torch::nn::LinearImpl>(index));
}

at::Tensor FeedForwardImpl::forward(const at::Tensor& x) {
  const auto first = layer(0);
  check_sequence(kName, "x", x, options.emb_dim(), first->weight);
  return project(layer(2), gelu_tanh(project(first, x)));
}

}  // namespace attentive
