// A trainer whose loss is computed in chunks over a tied table. Groups of processes are simulated by threads.

#include <string>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randn.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <attentive/functional/linear_cross_entropy.h>
#include <attentive/train/trainer.h>

#include "functional/linear.h"
#include "support/thread_group.h"
#include "train/train_support.h"

using namespace attentive;
using attentive::test::equally_trained;
using attentive::test::run_threads;

namespace {

constexpr int64_t kWords = 400;  // more than a batch has tokens, so that the table is split into two uses

struct Tied : torch::nn::Module {
  explicit Tied(at::ScalarType type) {
    auto own = at::detail::createCPUGenerator(3);  // threads share the default one
    table = register_parameter("table", at::randn({kWords, 16}, own).mul_(0.2).to(type));
  }
  at::Tensor loss(const at::Tensor& x, const at::Tensor& y) {
    const TiedEmbedding weights(table, table, x);
    return linear_cross_entropy(weights.rows_of(x).sin(), weights.head(), y, {.label_smoothing = 0.1});
  }
  at::Tensor table;
};

// Batches of 320 tokens, which are two chunks.
TrainerOptions two_chunks() {
  auto options = test::small();
  options.block = 80;
  options.accumulate = 2;
  return options;
}

// The state after eight steps, of which those before `resumed_at` were done by another trainer.
Checkpoint trained_model(at::ScalarType type, const std::shared_ptr<TrainingGroup>& group,
                         int64_t resumed_at = 0) {
  Checkpoint state;
  for (const int64_t until : {resumed_at, int64_t{8}}) {
    const auto model = std::make_shared<Tied>(type);
    const BatchLoss loss = [model](const at::Tensor& x, const at::Tensor& y) { return model->loss(x, y); };
    Trainer trainer(model, loss, test::squares(200), test::squares(100), two_chunks(), group);
    if (state.step > 0) trainer.restore(state);
    while (trainer.steps_done() < until) trainer.step();
    state = test::copy_of(trainer.checkpoint());
  }
  return state;
}

}  // namespace

TEST_CASE("Two processes with a loss in chunks over a tied table train as one does, and as one that goes on",
          "[training_group]") {
  const auto type = GENERATE(at::kFloat, at::kBFloat16);
  const auto one = trained_model(type, nullptr);
  CHECK_FALSE(test::equal_tensors(one.model, {{"table", std::make_shared<Tied>(type)->table}}));
  CHECK(test::equal(trained_model(type, nullptr, 3), one));
  std::vector<Checkpoint> states(2);
  const auto errors = run_threads(2, [&](const std::shared_ptr<TrainingGroup>& group) {
    states[static_cast<size_t>(group->rank())] = trained_model(type, group, 5);
  });
  CHECK(errors == std::vector<std::string>{"no error", "no error"});
  for (const auto& state : states) CHECK(equally_trained(state, one));
}
