// Every rank of a group has separate dropout, which a checkpoint stores. The default generators belong to the
// whole process, so these tests simulate one rank at a time.

#include <set>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/equal.h>
#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include <attentive/train/trainer.h>

#include "support/compare.h"
#include "support/errors.h"
#include "train/agreement.h"
#include "train/run_state.h"
#include "train/train_support.h"

using namespace attentive;
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
