// Checkpointed blocks, the chunked loss, adapters and scaled losses on each device, against the CPU.

#include <cmath>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <torch/csrc/autograd/autograd.h>

#include <attentive/functional/linear_cross_entropy.h>
#include <attentive/models/gpt.h>
#include <attentive/models/lora.h>
#include <attentive/train/trainer.h>

#include "support/compare.h"
#include "train/train_support.h"

using namespace attentive;
using torch::autograd::grad;

namespace {

const GPTOptions kSmall = GPTOptions(29, 16, 32, 4, 3).qkv_bias(true);

GPT seeded(const GPTOptions& options, const at::Device& device) {
  at::manual_seed(3);
  GPT model(options);
  model->to(device);
  return model;
}

at::Tensor ids(int64_t seed, const at::Device& device) {
  at::manual_seed(static_cast<uint64_t>(seed));
  return at::randint(29, {2, 12}, at::kLong).to(device);
}

// The loss, a number drawn after it, and every gradient, on the CPU.
std::vector<at::Tensor> step(GPT& model, const at::Device& device) {
  at::manual_seed(11);
  const auto loss = model->loss(ids(5, device), ids(6, device));
  const auto drawn = at::rand({3}, at::TensorOptions(device));
  loss.backward();
  std::vector<at::Tensor> found{loss.detach().cpu(), drawn.cpu()};
  for (const auto& parameter : model->parameters()) {
    if (parameter.grad().defined()) found.push_back(parameter.grad().cpu());
  }
  return found;
}

void check_near(const std::vector<at::Tensor>& got, const std::vector<at::Tensor>& want, double tolerance) {
  REQUIRE(got.size() == want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    INFO("tensor " << i);
    const double largest = want[i].abs().max().item<double>();
    CHECK_WITHIN(got[i].to(at::kDouble), want[i].to(at::kDouble), {0.0, tolerance * largest + 1e-12});
  }
}

}  // namespace

// On a GPU, scatter operations add in any order, so its gradients need not be bit-identical.
TEST_CASE("on each device, checkpointed blocks draw their dropout again", "[activation_checkpoint][cuda]") {
  for (const auto& device : test::devices()) {
    INFO("device " << device);
    const auto run = [&](int64_t every) {
      auto model = seeded(GPTOptions(kSmall).dropout(0.2).checkpoint(every), device);
      return step(model, device);
    };
    const auto want = run(0);
    check_near(run(1), want, 1e-5);
    check_near(run(2), want, 1e-5);
  }
}

TEST_CASE("on each device, the chunked loss equals the composed one", "[linear_cross_entropy][cuda]") {
  const auto type = GENERATE(at::kFloat, at::kBFloat16, at::kHalf);
  INFO("dtype " << c10::toString(type));
  at::manual_seed(9);
  const auto hidden = at::randn({700, 40}), weight = at::randn({301, 40}) * 0.3;
  auto targets = at::randint(301, {700}, at::kLong);
  targets.narrow(0, 5, 90).fill_(-100);
  const auto results = [&](const at::Device& device, at::ScalarType as, bool chunked) {
    const auto leaf = [&](const at::Tensor& x) {
      return x.to(type).to(at::TensorOptions(device).dtype(as)).detach().requires_grad_(true);
    };
    const auto h = leaf(hidden), w = leaf(weight);
    const auto y = targets.to(device);
    const auto loss = chunked ? linear_cross_entropy(h, w, y) : at::cross_entropy_loss(at::linear(h, w), y);
    auto found = grad({loss}, {h, w});
    found.push_back(loss.detach());
    for (auto& x : found) x = x.cpu();
    return found;
  };
  const auto want = results(at::kCPU, at::kDouble, false);
  for (const auto& device : test::devices()) {
    INFO("device " << device);
    check_near(results(device, type, true), want, type == at::kFloat ? 1e-5 : 4 * test::unit_of(type));
  }
}

TEST_CASE("on each device, adapters equal merged weights, and learn", "[lora][cuda]") {
  const auto run = [](const at::Device& device) {
    auto model = seeded(kSmall, device);
    at::manual_seed(4);
    auto lora = Lora({.rank = 3, .alpha = 6, .targets = {"all-linear"}}).attach(model);
    for (const auto& parameter : lora.parameters()) CHECK(parameter.device().type() == device.type());
    {
      const at::NoGradGuard no_grad;
      uint64_t seed = 0;  // the same numbers on every device
      for (auto parameter : lora.parameters()) {
        at::manual_seed(++seed);
        parameter.copy_(at::randn(parameter.sizes()) * 0.2);
      }
    }
    const auto found = step(model, device);
    const auto logits = model->forward(ids(5, device)).detach();
    lora.merge();
    CHECK_WITHIN(model->forward(ids(5, device)).detach(), logits, {1e-4, 1e-4});
    return std::vector<at::Tensor>(found.begin() + 2, found.end());
  };
  const auto want = run(at::kCPU);
  for (const auto& device : test::devices()) {
    INFO("device " << device);
    check_near(run(device), want, 1e-4);
  }
}

TEST_CASE("on each device, a trainer scales the losses of float16", "[loss_scaling][cuda]") {
  for (const auto& device : test::devices()) {
    INFO("device " << device);
    auto model = seeded(kSmall, device);
    auto options = test::small();
    options.device = device;
    options.steps = 40;
    options.autocast = at::kHalf;
    options.loss_scaling = {.initial = 0x1p30, .interval = 6};
    options.learning_rate = 0.01;
    Trainer trainer(
        model.ptr(), [&](const at::Tensor& x, const at::Tensor& y) { return model->loss(x, y); },
        test::squares(200), test::squares(60), options);
    const double before = *trainer.validate();
    int64_t skips = 0;
    for (int64_t i = 0; i < 40; ++i) {
      const auto row = trainer.step();
      CHECK(std::isfinite(row.loss));
      skips += row.skipped();
    }
    CHECK(skips >= 1);
    CHECK(skips <= 20);
    CHECK(*trainer.validate() < before / 2);
    for (const auto& parameter : model->parameters()) CHECK(parameter.isfinite().all().item<bool>());
  }
}
