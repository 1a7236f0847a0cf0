#include <torch/nn/modules/activation.h>

#include <attentive/modules/feed_forward.h>

#include "core/check.h"
#include "functional/gelu.h"
#include "modules/projection.h"

namespace attentive {
namespace {

constexpr const char* kWho = "FeedForward";

}  // namespace

FeedForwardImpl::FeedForwardImpl(FeedForwardOptions options_) : options(options_) {
  build();
}

void FeedForwardImpl::reset() {
  check_positive(kWho, "emb_dim", options.emb_dim());
  check_positive(kWho, "hidden_dim", options.hidden_dim());
  const auto linear = [&](int64_t from, int64_t to) {
    return torch::nn::Linear(torch::nn::LinearOptions(from, to).bias(options.bias()));
  };
  layers = register_module("layers", torch::nn::Sequential());
  layers->push_back(linear(options.emb_dim(), options.hidden_dim()));
  layers->push_back(torch::nn::GELU(torch::nn::GELUOptions().approximate("tanh")));
  layers->push_back(linear(options.hidden_dim(), options.emb_dim()));
}

void FeedForwardImpl::pretty_print(std::ostream& stream) const {
  stream << std::boolalpha << "attentive::FeedForward(emb_dim=" << options.emb_dim()
         << ", hidden_dim=" << options.hidden_dim() << ", bias=" << options.bias() << ")";
}

torch::nn::Linear FeedForwardImpl::layer(size_t index) const {
  return torch::nn::Linear(layers->ptr<torch::nn::LinearImpl>(index));
}

at::Tensor FeedForwardImpl::forward(const at::Tensor& x) {
  const auto first = layer(0);
  check_sequence(kWho, "x", x, options.emb_dim(), first->weight);
  return project(layer(2), gelu_tanh(project(first, x)));
}

}  // namespace attentive
