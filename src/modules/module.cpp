#include <mutex>
#include <optional>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <c10/util/Exception.h>

#include <attentive/modules/module.h>

#include "core/normal_tensors.h"
#include "modules/first_weights.h"

namespace attentive {
namespace {

thread_local int guards = 0;

// LibTorch's layers draw weights in their constructors, so a tiny layer is built and then given its real
// size.
template <class Layer, class Options>
Layer without_values(const Options& tiny, const Options& wanted, at::IntArrayRef weight) {
  const RandomStateGuard random;
  Layer layer(tiny);
  layer->options = wanted;
  layer->weight.set_data(at::empty(weight));
  return layer;
}

}  // namespace

NoFirstWeights::NoFirstWeights() {
  ++guards;
}

NoFirstWeights::~NoFirstWeights() {
  --guards;
}

bool draws_first_weights() {
  return guards == 0;
}

torch::nn::Linear linear_layer(const torch::nn::LinearOptions& options) {
  if (draws_first_weights()) return torch::nn::Linear(options);
  const auto out = options.out_features();
  auto layer = without_values<torch::nn::Linear>(torch::nn::LinearOptions(1, 1).bias(options.bias()), options,
                                                 {out, options.in_features()});
  if (options.bias()) layer->bias.set_data(at::empty({out}));
  return layer;
}

torch::nn::Linear linear_layer(int64_t in_features, int64_t out_features, bool bias) {
  return linear_layer(torch::nn::LinearOptions(in_features, out_features).bias(bias));
}

torch::nn::Embedding embedding_layer(int64_t rows, int64_t features) {
  const torch::nn::EmbeddingOptions options(rows, features);
  if (draws_first_weights()) return torch::nn::Embedding(options);
  return without_values<torch::nn::Embedding>(torch::nn::EmbeddingOptions(1, 1), options, {rows, features});
}

torch::nn::Conv1d causal_convolution_layer(int64_t channels, int64_t kernel) {
  std::optional<RandomStateGuard> random;  // its few weights are drawn nevertheless
  if (!draws_first_weights()) random.emplace();
  return torch::nn::Conv1d(
      torch::nn::Conv1dOptions(channels, channels, kernel).groups(channels).padding(kernel - 1).bias(false));
}

at::Tensor normal_parameter(at::IntArrayRef sizes) {
  return draws_first_weights() ? at::randn(sizes) : at::empty(sizes);
}

RandomStateGuard::RandomStateGuard() {
  auto generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  state_ = generator.get_state();
}

RandomStateGuard::~RandomStateGuard() {
  auto generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(state_);
}

void detail::build_module(const char* name, const std::function<void()>& reset) {
  with_allocation_errors(name, "its parameters", reset);
}

void detail::fail_empty_holder(const char* name) {
  TORCH_CHECK_VALUE(false, name,
                    ": expected a holder with a module, got an empty one, made from nullptr; assign ", name,
                    "(...) to it first");
}

}  // namespace attentive
