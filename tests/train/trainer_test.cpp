#include <cmath>

#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/train/trainer.h>

#include "support/compare.h"
#include "support/message.h"
#include "support/temporary_folder.h"
#include "train/files.h"
#include "train/train_support.h"

using namespace attentive;
using attentive::test::bit_equal;
using attentive::test::value_error;

namespace {

TrainerOptions small() {
  TrainerOptions options;
  options.steps = 30;
  options.block = 8;
  options.batch = 4;
  options.warmup = 5;
  options.learning_rate = 0.05;
  options.min_learning_rate = 0.01;
  options.evaluate_every = 10;
  options.save_every = 10;
  options.log_every = 1;
  return options;
}

struct Run {
  explicit Run(TrainerOptions options = small())
      : model(test::make_bigram()),
        trainer(model, test::loss_of(model), test::squares(200), test::squares(60), options) {}
  std::shared_ptr<test::Bigram> model;
  Trainer trainer;
};

bool equal(const Checkpoint& a, const Checkpoint& b) {
  const auto same = [](const StateDict& x, const StateDict& y) {
    if (x.size() != y.size()) return false;
    for (const auto& [name, tensor] : x) {
      if (!y.contains(name) || !bit_equal(tensor, y.at(name))) return false;
    }
    return true;
  };
  return a.step == b.step && same(a.model, b.model) && same(a.optimizer, b.optimizer) &&
         a.documents == b.documents;
}

}  // namespace

TEST_CASE("Trainer learns a sequence that the last token decides", "[trainer]") {
  auto options = small();
  options.steps = 300;
  Run run(options);
  run.model->p = 0.0;
  const double before = *run.trainer.validate();
  LogRow row;
  for (int64_t i = 0; i < options.steps; ++i) row = run.trainer.step();
  CHECK(row.step == 300);
  CHECK(row.gradient_norm > 0);
  CHECK(row.tokens_per_second > 0);
  // After 1 and after 2 and 4 the squares modulo 7 go on in two ways each: entropy well above zero remains.
  CHECK(*run.trainer.validate() < before / 2);
}

TEST_CASE("Trainer goes on from a checkpoint bit for bit", "[trainer]") {
  const TemporaryFolder folder;
  Run whole;
  for (int i = 0; i < 30; ++i) whole.trainer.step();
  {
    Run first;
    for (int i = 0; i < 12; ++i) first.trainer.step();
    CheckpointFolder(folder.path()).save(first.trainer.checkpoint({{"tokenizer.json", "x"}}));
  }
  at::manual_seed(1234567);
  Run second;
  CHECK(second.trainer.restore(load_checkpoint(folder.path())).empty());
  CHECK(second.trainer.steps_done() == 12);
  for (int i = 12; i < 30; ++i) second.trainer.step();
  CHECK(equal(second.trainer.checkpoint(), whole.trainer.checkpoint()));
}

TEST_CASE("Trainer::run evaluates, logs, draws, saves, stops and goes on", "[trainer]") {
  const TemporaryFolder root;
  const auto rows_of = [&] { return read_log(root / "log.csv"); };
  Checkpoint whole;
  {
    const TemporaryFolder elsewhere;
    Run run;
    CheckpointFolder folder(elsewhere.path());
    CHECK(run.trainer.run(folder, {}));
    whole = load_checkpoint(elsewhere.path());
  }
  {
    Run run;
    CheckpointFolder folder(root.path());
    int64_t steps = 0;
    Trainer::RunOptions options;
    options.on_step = [&](const LogRow& row) { CHECK(row.step == ++steps); };
    options.stop = [&] { return steps == 17; };
    CHECK_FALSE(run.trainer.run(folder, options));
    CHECK(steps == 17);
  }
  CHECK(load_checkpoint(root.path()).step == 17);
  CHECK(rows_of().size() == 17);
  {
    Run run;
    CheckpointFolder folder(root.path());
    run.trainer.restore(load_checkpoint(root / "step-00000010"));  // an older one: its log goes back too
    std::vector<std::string> notes;
    Trainer::RunOptions options;
    options.on_note = [&](const std::string& note) { notes.push_back(note); };
    CHECK(run.trainer.run(folder, options));
    CHECK(notes == std::vector<std::string>{"saved " + (root / "step-00000020").string(),
                                            "saved " + (root / "step-00000030").string()});
  }
  CHECK(equal(load_checkpoint(root.path()), whole));
  const auto rows = rows_of();
  REQUIRE(rows.size() == 30);
  for (size_t i = 0; i < 30; ++i) {
    CHECK(rows[i].step == static_cast<int64_t>(i + 1));
    CHECK(rows[i].validation_loss.has_value() == ((i + 1) % 10 == 0));
  }
  CHECK(list_checkpoints(root.path()).size() == 2);
  CHECK(read_file(root / "loss.svg").ends_with("</svg>\n"));
}

TEST_CASE("Trainer accumulates gradients as one larger batch", "[trainer]") {
  auto large = small();
  large.batch = 8;
  auto parts = small();
  parts.accumulate = 2;
  Run one(large), two(parts);
  one.model->p = two.model->p = 0.0;
  for (int i = 0; i < 5; ++i) {
    const auto a = one.trainer.step();
    const auto b = two.trainer.step();
    CHECK(std::abs(a.loss - b.loss) < 1e-5);
  }
  CHECK_WITHIN(one.model->table, two.model->table, {1e-4, 1e-5});
}

TEST_CASE("Trainer in bfloat16 autocast still learns", "[trainer]") {
  auto options = small();
  options.autocast = at::kBFloat16;
  Run run(options);
  const double before = *run.trainer.validate();
  for (int i = 0; i < 30; ++i) run.trainer.step();
  CHECK(*run.trainer.validate() < before);
  CHECK(run.model->table.scalar_type() == at::kFloat);
}

TEST_CASE("Trainer stops at a loss that is not finite and leaves the parameters", "[trainer]") {
  Run run;
  {
    const at::NoGradGuard no_grad;
    run.model->bias[0] = NAN;
  }
  const auto before = run.model->table.clone();
  CHECK(value_error([&] {
          return run.trainer.step().loss;
        }).starts_with("Trainer: expected a finite loss and gradient at step 1, got "));
  CHECK(bit_equal(run.model->table, before));
  CHECK(run.trainer.steps_done() == 0);
}

TEST_CASE("Trainer refuses a checkpoint of another run, by name", "[trainer]") {
  Run run;
  run.trainer.step();
  const auto saved = run.trainer.checkpoint();
  const auto refused = [&](const Checkpoint& checkpoint, TrainerOptions options = small()) {
    Run other(options);
    return value_error([&] { return other.trainer.restore(checkpoint).size(); });
  };
  auto changed = small();
  changed.batch = 5;
  CHECK(refused(saved, changed) == "Trainer: expected batch = 4 as in the checkpoint, got 5");
  changed = small();
  changed.seed = 8;
  CHECK(refused(saved, changed) == "Trainer: expected seed = 1337 as in the checkpoint, got 8");
  changed = small();
  changed.steps = 60;  // without a fixed length of the cosine, more steps mean other learning rates
  CHECK(refused(saved, changed) == "Trainer: expected decay_steps = 30 as in the checkpoint, got 60");
  changed.decay_steps = 30;
  CHECK(refused(saved, changed).empty());
  auto model = test::make_bigram();
  Trainer other_text(model, test::loss_of(model), test::squares(201), {}, small());
  CHECK(value_error([&] { return other_text.restore(saved).size(); }) ==
        "Trainer: expected the training text of the checkpoint, got another one");
  auto damaged = saved;
  damaged.documents.erase("state.json");
  CHECK(refused(damaged) == "Trainer: expected a checkpoint with state.json");
  damaged = saved;
  damaged.model["table"] = at::full({7, 6}, 0.0);
  CHECK(refused(damaged).find("table: expected") != std::string::npos);
  damaged = saved;
  damaged.model["table"] = damaged.model["table"].to(at::kDouble);
  CHECK(refused(damaged) == "Trainer: expected \"table\" of dtype Float, got Double");
  damaged = saved;
  damaged.documents["trainer.json"] = "{}";
  CHECK(refused(damaged) == "TrainerOptions: expected a member \"steps\"");
  damaged = saved;
  damaged.documents["state.json"] = "{\"step\": 1}";
  CHECK(refused(damaged).starts_with("Trainer: state.json: "));
}

TEST_CASE("Trainer says that another number of threads gives other bits", "[trainer]") {
  Run run;
  const auto saved = run.trainer.checkpoint();
  const int threads = at::get_num_threads();
  at::set_num_threads(threads + 1);
  const auto remarks = Run().trainer.restore(saved);
  at::set_num_threads(threads);
  REQUIRE(remarks.size() == 1);
  CHECK(remarks[0].find("will not be equal bit for bit") != std::string::npos);
}

TEST_CASE("Trainer refuses texts and options without meaning, by name", "[trainer]") {
  const auto refused = [](TrainerOptions options, const at::Tensor& text = test::squares(100)) {
    auto model = test::make_bigram();
    return value_error([&] { return Trainer(model, test::loss_of(model), text, {}, options).steps_done(); });
  };
  auto options = small();
  options.steps = 0;
  CHECK(refused(options) == "Trainer: expected steps > 0, got 0");
  options = small();
  options.accumulate = 0;
  CHECK(refused(options) == "Trainer: expected accumulate > 0, got 0");
  options = small();
  options.clip = NAN;
  CHECK(refused(options) == "Trainer: expected clip >= 0, got nan");
  CHECK(refused(small(), at::arange(8)) == "BlockSampler: expected more than block = 8 tokens, got 8");
  CHECK(value_error([] { return Trainer(nullptr, {}, at::arange(100), {}).steps_done(); }) ==
        "Trainer: expected a model, got none");
}

TEST_CASE("TrainerOptions survive JSON", "[trainer]") {
  auto options = small();
  options.autocast = at::kBFloat16;
  options.learning_rate = 0.1 + 0.2;
  options.seed = 0xffffffffffffffffull;
  CHECK(to_json(parse_trainer_options(to_json(options))) == to_json(options));
  CHECK(parse_trainer_options(to_json(options)).seed == options.seed);
  CHECK(value_error([] { return parse_trainer_options("[]").steps; }) ==
        "TrainerOptions: expected a JSON object");
}
