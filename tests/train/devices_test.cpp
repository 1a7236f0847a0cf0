// Checkpointed blocks, the chunked loss, adapters and scaled losses on each device, against the CPU.

#include <cmath>
#include <set>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <nlohmann/json.hpp>
#include <torch/csrc/autograd/autograd.h>

#include <attentive/functional/linear_cross_entropy.h>
#include <attentive/models/gpt.h>
#include <attentive/models/lora.h>
#include <attentive/train/trainer.h>

#include "support/compare.h"
#include "support/errors.h"
#include "train/agreement.h"
#include "train/run_state.h"
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
  const auto inputs = ids(5, device), targets = ids(6, device);
  const auto loss = model->loss(inputs, targets);
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

// Every rank of a group has separate dropout, which a checkpoint stores. The default generators belong to the
// whole process, so these tests simulate one rank at a time.

using attentive::test::small;
using attentive::test::squares;

namespace {

// One process of a group whose other processes do the same, except that their generators have other states.
class OneOf : public TrainingGroup {
 public:
  OneOf(int64_t rank, int64_t size) : rank_(rank), size_(size) {}
  int64_t rank() const override { return rank_; }
  int64_t size() const override { return size_; }
  std::vector<at::Tensor> gather(const at::Tensor& tensor) override {
    std::vector<at::Tensor> all(static_cast<size_t>(size_), tensor);
    if (!at::equal(tensor, generator_state(at::detail::getDefaultCPUGenerator()))) return all;
    for (int64_t other = 0; other < size_; ++other) {
      if (other != rank_) all[static_cast<size_t>(other)] = state_of_other(other);
    }
    return all;
  }
  std::unique_ptr<GradientAverage> average_gradients(torch::nn::Module& model) override {
    return OneProcess().average_gradients(model);
  }

  static at::Tensor state_of_other(int64_t rank) {
    return generator_state(at::detail::createCPUGenerator(1000 + static_cast<uint64_t>(rank)));
  }

 private:
  int64_t rank_, size_;
};

struct RankRun {
  RankRun(int64_t rank, int64_t size)
      : model(test::make_bigram()),
        trainer(model, test::loss_of(model), squares(200), {}, options(),
                std::make_shared<OneOf>(rank, size)) {}
  static TrainerOptions options() {
    auto options = small();
    options.accumulate = 6;
    return options;
  }
  void step_until(int64_t steps) {
    while (trainer.steps_done() < steps) trainer.step();
  }
  std::shared_ptr<test::Bigram> model;
  Trainer trainer;
};

at::Tensor default_state() {
  return generator_state(at::detail::getDefaultCPUGenerator());
}

uint64_t default_seed() {
  return at::detail::getDefaultCPUGenerator().current_seed();
}

}  // namespace

TEST_CASE("Derived seeds differ in the half that the CPU's generator takes", "[training_group]") {
  for (const uint64_t seed : {0ull, 1337ull, 0xffffffffffffffffull}) {
    std::set<uint32_t> seen{static_cast<uint32_t>(seed)};
    for (uint64_t n = 0; n < 4096; ++n) seen.insert(static_cast<uint32_t>(derived_seed(seed, n)));
    CHECK(seen.size() == 4097);
  }
  CHECK(derived_seed(1, 0) != derived_seed(0, 1));
}

TEST_CASE("Ranks after the first drop other numbers than one process", "[training_group]") {
  test::make_bigram();
  const auto alone = default_state();
  std::set<uint64_t> seeds;
  for (int64_t rank = 0; rank < 3; ++rank) {
    const RankRun run(rank, 3);
    CHECK(at::equal(default_state(), alone) == (rank == 0));
    seeds.insert(default_seed());
  }
  CHECK(seeds.size() == 3);
  CHECK(seeds.contains(3));  // the model's seed, unchanged
}

TEST_CASE("A checkpoint holds the generators of every rank, and each takes its own", "[training_group]") {
  for (const int64_t rank : {0, 1}) {
    RankRun first(rank, 2);
    first.step_until(4);
    const auto saved = test::copy_of(first.trainer.checkpoint());
    const auto state = default_state();
    const auto generators = nlohmann::json::parse(saved.documents.at("state.json")).at("generators");
    REQUIRE(generators.size() == 2);
    CHECK(generators[0] != generators[1]);
    first.step_until(9);
    RankRun second(rank, 2);
    CHECK(second.trainer.restore(saved).empty());
    CHECK(bit_equal(default_state(), state));
    second.step_until(9);
    CHECK(bit_equal(second.model->table, first.model->table));
    // The other rank restores the other state.
    RankRun other(1 - rank, 2);
    other.trainer.restore(saved);
    CHECK(bit_equal(default_state(), OneOf::state_of_other(1 - rank)));
  }
}

TEST_CASE("A rank that a checkpoint does not have is seeded anew", "[training_group]") {
  RankRun two(0, 2);
  two.step_until(2);
  const auto early = test::copy_of(two.trainer.checkpoint());
  two.step_until(3);
  const auto late = two.trainer.checkpoint();
  const auto remark = [](const char* processes) {
    return std::vector<std::string>{std::string("the checkpoint was made by 2 processes, this run has ") +
                                    processes + ": dropout goes on with other bits"};
  };
  RankRun third(2, 3);
  std::set<uint64_t> seeds{default_seed()};
  for (const auto& saved : {early, late}) {
    CHECK(third.trainer.restore(saved) == remark("3 processes"));
    seeds.insert(default_seed());
  }
  CHECK(seeds.size() == 3);
  // A rank that the checkpoint has continues.
  RankRun alone(0, 1);
  CHECK(alone.trainer.restore(early) == remark("one process"));
  CHECK(default_seed() == 3);
}

TEST_CASE("A checkpoint of one process from before there were groups goes on", "[training_group]") {
  test::Run whole;
  for (int i = 0; i < 9; ++i) whole.trainer.step();
  test::Run first;
  for (int i = 0; i < 4; ++i) first.trainer.step();
  auto saved = first.trainer.checkpoint();
  auto state = nlohmann::json::parse(saved.documents.at("state.json"));
  const nlohmann::json only = state.at("generators").at(0);
  state["generators"] = only;
  state["world_size"] = 1;
  saved.documents["state.json"] = state.dump(1) + '\n';
  at::manual_seed(99);
  test::Run second;
  CHECK(second.trainer.restore(saved).empty());
  for (int i = 4; i < 9; ++i) second.trainer.step();
  CHECK(test::equal(second.trainer.checkpoint(), whole.trainer.checkpoint()));
  // A different number of processes is no reason to refuse, either.
  state["world_size"] = 4;
  saved.documents["state.json"] = state.dump(1) + '\n';
  CHECK(second.trainer.restore(saved).empty());
}
