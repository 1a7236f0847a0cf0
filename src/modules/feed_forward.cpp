#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/functional.h>

#include <attentive/modules/feed_forward.h>

#include "core/check.h"
#include "modules/activate.h"
#include "modules/checks.h"
#include "modules/first_weights.h"
#include "modules/projection.h"

namespace attentive {
namespace {

// Adds the activation to `layers`. Its `forward` is not called: it is there to be printed, and so that the
// layers have the indices of the book's class.
void push_activation(torch::nn::Sequential& layers, Activation activation) {
  switch (activation) {
    case Activation::GeluTanh:
      layers->push_back(torch::nn::GELU(torch::nn::GELUOptions().approximate("tanh")));
      return;
    case Activation::Gelu:
      layers->push_back(torch::nn::GELU());
      return;
    case Activation::Silu:
      layers->push_back(torch::nn::SiLU());
      return;
    case Activation::Relu:
      layers->push_back(torch::nn::ReLU());
      return;
    case Activation::QuickGelu:
    case Activation::Relu2:  // LibTorch has no modules for these
      layers->push_back(
          torch::nn::Functional([activation](const at::Tensor& x) { return activate(activation, x); }));
      return;
  }
  TORCH_CHECK_VALUE(false, FeedForwardImpl::kName, ": expected a known activation, got ",
                    static_cast<int>(activation));
}

}  // namespace

std::string_view to_string(Activation value) {
  return enum_name(value, {"gelu_tanh", "gelu", "silu", "relu", "quick_gelu", "relu2"});
}

FeedForwardImpl::FeedForwardImpl(FeedForwardOptions options_) : options(options_) {
  build();
}

void FeedForwardImpl::reset() {
  check_positive(kName, "emb_dim", options.emb_dim());
  if (options.hidden_dim() == 0) options.hidden_dim(4 * options.emb_dim());
  check_positive(kName, "hidden_dim", options.hidden_dim());
  const auto linear = [&](int64_t from, int64_t to) { return linear_layer(from, to, options.bias()); };
  layers = register_module("layers", torch::nn::Sequential());
  layers->push_back(linear(options.emb_dim(), options.hidden_dim()));
  push_activation(layers, options.activation());
  layers->push_back(linear(options.hidden_dim(), options.emb_dim()));
  if (options.gated()) gate = register_module("gate", linear(options.emb_dim(), options.hidden_dim()));
}

torch::nn::Linear FeedForwardImpl::layer(size_t index) const {
  return torch::nn::Linear(layers->ptr<torch::nn::LinearImpl>(index));
}

at::Tensor FeedForwardImpl::forward(const at::Tensor& x) {
  const auto first = layer(0);
  check_sequence(kName, "x", x, options.emb_dim(), first->weight);
  const auto hidden = gate ? project_gated(options.activation(), gate, first, x)
                           : project_activated(options.activation(), first, x);
  return project(layer(2), hidden);
}

}  // namespace attentive
