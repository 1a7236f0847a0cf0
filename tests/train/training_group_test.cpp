// A trainer in a group learns the same as a single process. The processes are simulated by threads.

#include <algorithm>
#include <filesystem>

#include <ATen/ops/cat.h>
#include <catch2/catch_test_macros.hpp>
#include <torch/nn/modules/dropout.h>

#include <attentive/train/trainer.h>

#include "base/files.h"
#include "support/compare.h"
#include "support/errors.h"
#include "support/files.h"
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

// A whole run in a group: one set of files, one end. The processes are simulated by threads.

using attentive::test::equal_tensors;
using attentive::test::equally_trained;

namespace {

using Documents = std::vector<std::string>;

const Documents kNone{"no error", "no error"};

TrainerOptions two_passes() {
  auto options = test::small();
  options.accumulate = 2;
  return options;
}

std::unique_ptr<Trainer> trainer_of(const std::shared_ptr<test::Bigram>& model,
                                    const std::shared_ptr<TrainingGroup>& group,
                                    const TrainerOptions& options = two_passes()) {
  return std::make_unique<Trainer>(model, test::loss_of(model), test::squares(200), test::squares(60),
                                   options, group);
}

// Trains with two processes, from a checkpoint if there is one, and returns the state after `steps`. Both
// must return the same remarks.
Checkpoint two_until(int64_t steps, const Checkpoint* from, std::vector<std::string>* remarks) {
  const auto models = models_of_ranks(2);
  std::vector<Checkpoint> states(2);
  std::vector<std::vector<std::string>> told(2);
  const auto errors = run_threads(2, [&](const std::shared_ptr<TrainingGroup>& group) {
    const auto rank = static_cast<size_t>(group->rank());
    const auto trainer = trainer_of(models[rank], group);
    if (from) told[rank] = trainer->restore(*from);
    while (trainer->steps_done() < steps) trainer->step();
    states[rank] = trainer->checkpoint();
  });
  CHECK(errors == kNone);
  CHECK(test::equal(states[0], states[1]));
  CHECK(told[0] == told[1]);
  if (remarks) *remarks = told[0];
  return states[0];
}

}  // namespace

TEST_CASE("A group writes the files of one process, and every rank reports the same", "[training_group]") {
  const TemporaryFolder alone, together;
  {
    CheckpointFolder folder(alone.path());
    CHECK(trainer_of(models_of_ranks(1)[0], nullptr)->run(folder, {}));
  }
  const auto models = models_of_ranks(2);
  std::vector<std::vector<LogRow>> rows(2);
  std::vector<int> notes(2);
  const auto errors = run_threads(2, [&](const std::shared_ptr<TrainingGroup>& group) {
    const auto rank = static_cast<size_t>(group->rank());
    CheckpointFolder folder(together.path(), group->rank());
    Trainer::RunOptions options;
    options.on_step = [&](const LogRow& row) { rows[rank].push_back(row); };
    options.on_note = [&](const std::string&) { ++notes[rank]; };
    if (!trainer_of(models[rank], group)->run(folder, options)) throw std::runtime_error("not all steps");
  });
  CHECK(errors == kNone);
  CHECK(names_in(together.path()) == names_in(alone.path()));
  CHECK(notes == std::vector<int>{3, 0});
  CHECK(equally_trained(load_checkpoint(together.path()), load_checkpoint(alone.path())));
  const auto expected = read_log(alone / "log.csv"), logged = read_log(together / "log.csv");
  REQUIRE(expected.size() == 30);
  REQUIRE(logged.size() == 30);
  for (size_t i = 0; i < 30; ++i) {
    for (const auto& row : {logged[i], rows[0].at(i), rows[1].at(i)}) {
      CHECK(row.step == expected[i].step);
      CHECK(row.loss == expected[i].loss);
      CHECK(row.gradient_norm == expected[i].gradient_norm);
      CHECK(row.validation_loss == expected[i].validation_loss);
    }
  }
}

TEST_CASE("A group that resumes a finished run writes nothing", "[training_group]") {
  const TemporaryFolder together;
  std::vector<std::string> before;
  for (const bool resumes : {false, true}) {
    const auto models = models_of_ranks(2);
    const auto errors = run_threads(2, [&](const std::shared_ptr<TrainingGroup>& group) {
      const auto trainer = trainer_of(models[static_cast<size_t>(group->rank())], group);
      CheckpointFolder folder(together.path(), group->rank());
      if (resumes) trainer->restore(load_checkpoint(together.path()));
      CHECK(trainer->run(folder, {.log = resumes ? "again.csv" : "log.csv"}));
    });
    CHECK(errors == kNone);
    auto names = names_in(together.path());
    std::ranges::sort(names);
    if (resumes) CHECK(names == before);
    before = names;
  }
}

TEST_CASE("A stop that one rank asks for ends the run on all after the same step", "[training_group]") {
  for (const int64_t stopper : {0, 1, 2}) {
    const TemporaryFolder root;
    auto options = test::small();
    options.accumulate = 3;
    const auto models = models_of_ranks(3);
    std::vector<int64_t> steps(3);
    const auto errors = run_threads(3, [&](const std::shared_ptr<TrainingGroup>& group) {
      const auto rank = static_cast<size_t>(group->rank());
      CheckpointFolder folder(root.path(), group->rank());
      const auto trainer = trainer_of(models[rank], group, options);
      int64_t asked = 0;
      Trainer::RunOptions run;
      run.stop = [&] { return ++asked == 7 && group->rank() == stopper; };
      if (trainer->run(folder, run)) throw std::runtime_error("all steps");
      steps[rank] = trainer->steps_done();
    });
    CHECK(errors == Documents(3, "no error"));
    CHECK(steps == std::vector<int64_t>{7, 7, 7});
    CHECK(load_checkpoint(root.path()).step == 7);
    CHECK(read_log(root / "log.csv").size() == 7);
  }
}

TEST_CASE("A checkpoint goes on in another number of processes", "[training_group]") {
  const auto one_until = [](int64_t steps, const Checkpoint* from, std::vector<std::string>* remarks) {
    const auto trainer = trainer_of(models_of_ranks(1)[0], nullptr);
    if (from) *remarks = trainer->restore(*from);
    while (trainer->steps_done() < steps) trainer->step();
    return trainer->checkpoint();
  };
  const auto whole = one_until(30, nullptr, nullptr);
  std::vector<std::string> remarks;
  const auto at_12 = two_until(12, nullptr, nullptr);
  const auto at_15 = two_until(15, &at_12, &remarks);
  CHECK(remarks.empty());
  const auto at_20 = one_until(20, &at_15, &remarks);
  CHECK(remarks ==
        Documents{"the checkpoint was made by 2 processes, this run has one process: dropout goes on "
                  "with other bits"});
  const auto at_30 = two_until(30, &at_20, &remarks);
  CHECK(remarks ==
        Documents{"the checkpoint was made by one process, this run has 2 processes: dropout goes on "
                  "with other bits"});
  CHECK(equally_trained(at_30, whole));
}

TEST_CASE("Trainers of a group refuse different checkpoints and stay as they were", "[training_group]") {
  const auto at_3 = two_until(3, nullptr, nullptr), at_4 = two_until(4, nullptr, nullptr);
  const auto models = models_of_ranks(2);
  const auto errors = run_threads(2, [&](const std::shared_ptr<TrainingGroup>& group) {
    const auto trainer = trainer_of(models[static_cast<size_t>(group->rank())], group);
    trainer->restore(group->rank() == 0 ? at_3 : at_4);
  });
  CHECK(errors ==
        Documents(2,
                  "Trainer: expected the same checkpoint in every process, but those of rank 1 differ "
                  "from those of rank 0"));
  CHECK(bit_equal(models[1]->table, models_of_ranks(1)[0]->table));
}

TEST_CASE("An error of rank 0 while it saves ends the others", "[training_group]") {
  const TemporaryFolder root;
  const auto run = root / "run";
  auto options = two_passes();
  options.evaluate_every = 0;
  options.log_every = 1000;
  const auto models = models_of_ranks(2);
  const auto errors = run_threads(2, [&](const std::shared_ptr<TrainingGroup>& group) {
    CheckpointFolder folder(run, group->rank());
    Trainer::RunOptions run_options;
    run_options.on_step = [&](const LogRow& row) {
      if (group->rank() != 0 || row.step != 10) return;
      std::filesystem::rename(run, root / "away");
      write_file(run, "in its place");
    };
    trainer_of(models[static_cast<size_t>(group->rank())], group, options)->run(folder, run_options);
  });
  CHECK(errors[0].starts_with("CheckpointFolder: " + run.string() + ": "));
  CHECK(errors[1] == "rank 0 is missing");
}

TEST_CASE("A run whose optimizer is in shares is the same run, and goes on in any number of processes",
          "[training_group][sharded_adamw]") {
  auto options = test::small();
  options.accumulate = 6;
  // Trains with `size` processes, from a checkpoint if there is one, and returns the state after `steps`.
  const auto until = [&](int64_t size, bool sharded, int64_t steps, const Checkpoint* from) {
    const auto models = models_of_ranks(size);
    std::vector<Checkpoint> states(static_cast<size_t>(size));
    auto group_options = options;
    group_options.shard_optimizer = sharded;
    const auto errors = run_threads(size, [&](const std::shared_ptr<TrainingGroup>& group) {
      const auto rank = static_cast<size_t>(group->rank());
      const auto trainer = trainer_of(models[rank], group, group_options);
      if (from) trainer->restore(*from);
      while (trainer->steps_done() < steps) trainer->step();
      states[rank] = trainer->checkpoint();
    });
    CHECK(errors == Documents(static_cast<size_t>(size), "no error"));
    for (const auto& state : states) CHECK(test::equal(state, states[0]));
    return states[0];
  };
  const auto two = until(2, false, 10, nullptr), shared = until(2, true, 10, nullptr);
  CHECK(equally_trained(shared, two));
  CHECK(shared.documents.at("state.json") == two.documents.at("state.json"));
  CHECK(shared.documents.at("trainer.json").find("\"shard_optimizer\": true") != std::string::npos);
  for (const int64_t size : {1, 2, 3}) {
    INFO(size << " processes");
    const auto expected = until(size, false, 20, &two);
    CHECK(equally_trained(until(size, true, 20, &shared), expected));
    CHECK(equally_trained(until(size, true, 20, &two), expected));
    CHECK(equally_trained(until(size, false, 20, &shared), expected));
  }
}

TEST_CASE("A trainer whose optimizer is in shares refuses a checkpoint and stays as it was",
          "[training_group][sharded_adamw]") {
  auto saved = test::copy_of(two_until(3, nullptr, nullptr));
  saved.optimizer.erase("exp_avg.table");
  auto options = two_passes();
  options.shard_optimizer = true;
  const auto models = models_of_ranks(2);
  std::vector<std::string> told(2);
  std::vector<int> same(2);
  const auto errors = run_threads(2, [&](const std::shared_ptr<TrainingGroup>& group) {
    const auto rank = static_cast<size_t>(group->rank());
    const auto trainer = trainer_of(models[rank], group, options);
    trainer->step();
    const auto before = test::copy_of(trainer->checkpoint());
    told[rank] = test::value_error([&] { trainer->restore(saved); });
    same[rank] = test::equal(trainer->checkpoint(), before);
  });
  CHECK(errors == kNone);
  CHECK(told == Documents(2, "ShardedAdamW: expected the state \"exp_avg.table\", got none"));
  CHECK(same == std::vector<int>{1, 1});
}

TEST_CASE("A checkpoint from before there were shares goes on", "[training_group][sharded_adamw]") {
  auto saved = two_until(5, nullptr, nullptr);
  auto& text = saved.documents.at("trainer.json");
  const std::string member = ",\n \"shard_optimizer\": false";
  REQUIRE(text.find(member) != std::string::npos);
  text.erase(text.find(member), member.size());
  CHECK_FALSE(parse_trainer_options(text).shard_optimizer);
  CHECK(two_until(7, &saved, nullptr).step == 7);
}

TEST_CASE("Every process takes part in a checkpoint of moments in shares",
          "[training_group][sharded_adamw]") {
  const TemporaryFolder plain, shared;
  for (const auto* root : {&plain, &shared}) {
    auto options = two_passes();
    options.shard_optimizer = root == &shared;
    const auto models = models_of_ranks(2);
    const auto errors = run_threads(2, [&](const std::shared_ptr<TrainingGroup>& group) {
      CheckpointFolder folder(root->path(), group->rank());
      if (folder.writes() != (group->rank() == 0)) throw std::runtime_error("not rank 0 writes");
      trainer_of(models[static_cast<size_t>(group->rank())], group, options)->run(folder, {});
    });
    CHECK(errors == kNone);
  }
  CHECK(names_in(shared.path()) == names_in(plain.path()));
  CHECK(equally_trained(load_checkpoint(shared.path()), load_checkpoint(plain.path())));
  CHECK(load_checkpoint(shared.path()).optimizer.size() == 5);  // two moments of two parameters, and the step
}
