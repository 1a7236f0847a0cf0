// A trainer in a group learns the same as a single process. The processes are simulated by threads.

#include <ATen/ops/cat.h>
#include <catch2/catch_test_macros.hpp>
#include <torch/nn/modules/dropout.h>

#include <attentive/train/trainer.h>

#include "support/compare.h"
#include "support/errors.h"
#include "support/thread_group.h"
#include "train/train_support.h"

using namespace attentive;
using attentive::test::models_of_ranks;
using attentive::test::run_threads;
using attentive::test::small;

namespace {

using Models = std::vector<std::shared_ptr<test::Bigram>>;

// The inputs of one process, and its results.
struct History {
  std::vector<double> losses = {}, norms = {}, validations = {};
  std::vector<at::Tensor> rows = {};  // the inputs of its forward passes in training, (rows, block)
  int64_t evaluated = 0;              // number of forward passes in evaluation
  at::Tensor table = {}, bias = {};
};

bool operator==(const History& a, const History& b) {
  return a.losses == b.losses && a.norms == b.norms && a.validations == b.validations &&
         bit_equal(a.table, b.table) && bit_equal(a.bias, b.bias);
}

History learn(const std::shared_ptr<test::Bigram>& model, const TrainerOptions& options, int64_t steps,
              const std::shared_ptr<TrainingGroup>& group = nullptr) {
  History history;
  const auto loss = [&](const at::Tensor& x, const at::Tensor& y) {
    if (model->is_training()) {
      history.rows.push_back(x);
    } else {
      ++history.evaluated;
    }
    return model->loss(x, y);
  };
  Trainer trainer(model, loss, test::squares(200), test::squares(60), options, group);
  for (int64_t i = 0; i < steps; ++i) {
    const auto row = trainer.step();
    history.losses.push_back(row.loss);
    history.norms.push_back(row.gradient_norm);
    if (i % 5 == 0) history.validations.push_back(*trainer.validate());
  }
  history.table = model->table.detach().clone();
  history.bias = model->bias.detach().clone();
  return history;
}

// Trains in a group and returns the histories by rank.
std::vector<History> learn_together(int64_t size, const TrainerOptions& options, int64_t steps) {
  const auto models = models_of_ranks(size);
  std::vector<History> histories(static_cast<size_t>(size));
  const auto errors = run_threads(size, [&](const std::shared_ptr<TrainingGroup>& group) {
    const auto rank = static_cast<size_t>(group->rank());
    histories[rank] = learn(models[rank], options, steps, group);
  });
  CHECK(errors == std::vector<std::string>(static_cast<size_t>(size), "no error"));
  return histories;
}

TrainerOptions sized(int64_t batch, int64_t accumulate) {
  auto options = small();
  options.batch = batch;
  options.accumulate = accumulate;
  return options;
}

void check_close(const History& history, const History& one) {
  for (size_t i = 0; i < one.losses.size(); ++i) {
    CHECK(std::abs(history.losses[i] - one.losses[i]) < 1e-5);
    CHECK(std::abs(history.norms[i] - one.norms[i]) < 1e-5);
  }
  CHECK_WITHIN(history.table, one.table, {1e-4, 1e-5});
}

// Lets each process make a trainer and do a step; returns the error messages.
std::vector<std::string> step_errors(int64_t size,
                                     const std::function<void(TrainerOptions&, int64_t)>& change,
                                     int64_t tokens_of_rank_1 = 200) {
  const auto models = models_of_ranks(size);
  return run_threads(size, [&](const std::shared_ptr<TrainingGroup>& group) {
    auto options = small();
    change(options, group->rank());
    const auto model = models[static_cast<size_t>(group->rank())];
    const auto text = test::squares(group->rank() == 1 ? tokens_of_rank_1 : 200);
    Trainer(model, test::loss_of(model), text, {}, options, group).step();
  });
}

}  // namespace

TEST_CASE("Two processes learn the bits of one that accumulates two passes", "[training_group]") {
  const auto one = learn(models_of_ranks(1)[0], sized(4, 2), 20);
  const auto two = learn_together(2, sized(4, 2), 20);
  CHECK(two[0] == one);
  CHECK(two[1] == one);
  CHECK(one.evaluated == two[0].evaluated + two[1].evaluated);
  CHECK(two[1].evaluated > 0);
  CHECK(one.losses.front() > one.losses.back());  // the model has learned something
  CHECK_FALSE(learn(models_of_ranks(1)[0], sized(4, 1), 20) == one);
}

TEST_CASE("Processes that share passes agree in every bit and learn what one does", "[training_group]") {
  for (const auto& [size, accumulate] : {std::pair{2, 4}, {4, 4}, {4, 8}, {3, 3}}) {
    INFO(size << " processes, " << accumulate << " passes");
    const auto one = learn(models_of_ranks(1)[0], sized(4, accumulate), 20);
    const auto histories = learn_together(size, sized(4, accumulate), 20);
    for (const auto& history : histories) CHECK(history == histories[0]);
    check_close(histories[0], one);
    CHECK(histories[0].losses[0] == one.losses[0]);  // equal parameters, and passes in the same order
    for (size_t pass = 0; pass < one.rows.size(); ++pass) {
      const auto& rows = histories[pass % static_cast<size_t>(size)].rows;
      CHECK(bit_equal(rows.at(pass / static_cast<size_t>(size)), one.rows[pass]));
    }
  }
}

TEST_CASE("Processes share the rows of a pass where they cannot share passes", "[training_group]") {
  for (const auto& [size, accumulate] : {std::pair{2, 1}, {3, 1}, {2, 3}, {4, 2}}) {
    INFO(size << " processes, " << accumulate << " passes");
    const auto one = learn(models_of_ranks(1)[0], sized(12, accumulate), 20);
    const auto histories = learn_together(size, sized(12, accumulate), 20);
    for (const auto& history : histories) CHECK(history == histories[0]);
    check_close(histories[0], one);
    for (size_t pass = 0; pass < one.rows.size(); ++pass) {
      std::vector<at::Tensor> rows;
      for (const auto& history : histories) rows.push_back(history.rows.at(pass));
      CHECK(rows[0].size(0) == 12 / size);
      CHECK(bit_equal(at::cat(rows), one.rows[pass]));
    }
  }
}

TEST_CASE("Trainer refuses passes and rows that a group cannot share", "[training_group]") {
  const auto refused = step_errors(2, [](TrainerOptions& options, int64_t) { options = sized(5, 1); });
  CHECK(refused ==
        std::vector<std::string>(2,
                                 "Trainer: expected accumulate or batch to be a multiple of the number "
                                 "of processes, 2, got 1 and 5: change one of the three"));
}

TEST_CASE("Trainers of a group refuse options and texts that differ, on every rank", "[training_group]") {
  const auto all = [](const std::string& what) {
    return std::vector<std::string>(3, "Trainer: expected the same " + what);
  };
  CHECK(step_errors(3, [](TrainerOptions& options, int64_t rank) {
          options.accumulate = 3;
          if (rank == 1) options.seed = 8;
        }) == all("options in every process, but rank 0 has \"seed\": 1337, rank 1 has \"seed\": 8"));
  CHECK(step_errors(
            3, [](TrainerOptions& options, int64_t) { options.accumulate = 3; }, 201) ==
        all("tokens to learn in every process, but those of rank 1 differ from those of rank 0"));
}

TEST_CASE("Trainers of a group refuse models with other options, and name the option", "[training_group]") {
  for (const int64_t size : {2, 3, 4}) {
    const auto models = models_of_ranks(size);
    for (int64_t rank = 0; rank < size; ++rank) {
      models[static_cast<size_t>(rank)]->register_module("drop",
                                                         torch::nn::Dropout(rank == size - 1 ? 0.6 : 0.5));
    }
    const auto errors = run_threads(size, [&](const std::shared_ptr<TrainingGroup>& group) {
      const auto model = models[static_cast<size_t>(group->rank())];
      Trainer(model, test::loss_of(model), test::squares(200), {}, sized(12, 12), group);
    });
    CHECK(errors == std::vector<std::string>(
                        static_cast<size_t>(size),
                        "Trainer: expected the same options of the model in every process, but rank 0 has "
                        "drop: p=0.5, rank " +
                            std::to_string(size - 1) + " has drop: p=0.6"));
  }
}

TEST_CASE("A loss that is not finite on one rank ends the step on all", "[training_group]") {
  const auto models = models_of_ranks(2);
  std::vector<at::Tensor> before(2);
  const auto errors = run_threads(2, [&](const std::shared_ptr<TrainingGroup>& group) {
    const auto rank = static_cast<size_t>(group->rank());
    const auto& model = models[rank];
    bool broken = false;
    const auto loss = [&](const at::Tensor& x, const at::Tensor& y) {
      return model->loss(x, y) * (broken && rank == 1 ? NAN : 1.0);
    };
    Trainer trainer(model, loss, test::squares(200), {}, sized(4, 2), group);
    trainer.step();
    before[rank] = model->table.detach().clone();
    broken = true;
    trainer.step();
  });
  for (size_t rank = 0; rank < 2; ++rank) {
    CHECK(errors[rank].starts_with("Trainer: expected a finite loss and gradient at step 2, got nan and "));
    CHECK(bit_equal(models[rank]->table, before[rank]));
  }
}

TEST_CASE("A process that ends is missing to the others", "[training_group]") {
  const auto models = models_of_ranks(3);
  const auto errors = run_threads(3, [&](const std::shared_ptr<TrainingGroup>& group) {
    const auto& model = models[static_cast<size_t>(group->rank())];
    Trainer trainer(model, test::loss_of(model), test::squares(200), {}, sized(4, 3), group);
    trainer.step();
    if (group->rank() == 1) return;
    trainer.step();
  });
  CHECK(errors == std::vector<std::string>{"rank 1 is missing", "no error", "rank 1 is missing"});
}
