#include <algorithm>
#include <cmath>
#include <fstream>
#include <memory>
#include <numeric>
#include <tuple>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <c10/core/InferenceMode.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <nlohmann/json.hpp>

#include <attentive/train/adamw.h>
#include <attentive/train/trainer.h>

#include "base/files.h"
#include "support/compare.h"
#include "support/errors.h"
#include "support/files.h"
#include "train/run_state.h"
#include "train/sha256.h"
#include "train/train_support.h"

using namespace attentive;
using attentive::test::equal;
using attentive::test::Run;
using attentive::test::small;
using attentive::test::value_error;

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
  // After 1, 2 and 4, the squares modulo 7 have two possible successors each, so the loss cannot reach zero.
  CHECK(*run.trainer.validate() < before / 2);
}

TEST_CASE("Trainer averages losses of a half type in float32", "[trainer]") {
  auto options = small();
  options.accumulate = 7;
  const auto model = test::make_bigram();
  std::vector<double> losses;
  const BatchLoss loss = [&](const at::Tensor& x, const at::Tensor& y) {
    auto narrow = model->loss(x, y).to(at::kBFloat16);
    losses.push_back(narrow.item<double>());
    return narrow;
  };
  Trainer trainer(model, loss, test::squares(200), test::squares(60), options);
  const double mean = trainer.step().loss;
  const double want = std::accumulate(losses.begin(), losses.end(), 0.0) / 7;
  CHECK(std::abs(mean - want) < 1e-6 * want);
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

// On a GPU, scatter operations add in any order, so its results need not be bit-identical.
TEST_CASE("Trainer on each device trains as on the CPU, and goes on from a checkpoint with its dropout",
          "[trainer][cuda]") {
  const auto parameters_after = [](const at::Device& device, double dropout, int64_t saved_at) {
    auto options = small();
    options.device = device;
    const auto begin = [&] {
      auto model = test::make_bigram();
      model->p = dropout;
      model->to(device);
      return std::pair(model, std::make_unique<Trainer>(model, test::loss_of(model), test::squares(200),
                                                        test::squares(60), options));
    };
    auto [model, trainer] = begin();
    for (int64_t i = 0; i < 30; ++i) {
      if (i == saved_at) {
        const auto saved = test::copy_of(trainer->checkpoint());
        std::tie(model, trainer) = begin();
        CHECK(trainer->restore(saved).empty());
      }
      trainer->step();
    }
    CHECK(std::isfinite(trainer->validate().value()));
    return model->table.detach().cpu();
  };
  const auto want = parameters_after(at::kCPU, 0.0, -1);
  for (const auto& device : test::devices()) {
    INFO("device " << device);
    CHECK_WITHIN(parameters_after(device, 0.0, -1), want, {1e-4, 1e-4});
    const auto whole = parameters_after(device, 0.25, -1);
    CHECK_WITHIN(parameters_after(device, 0.25, 12), whole, {1e-5, 1e-5});
    CHECK_FALSE(difference(whole, want).empty());  // dropout was drawn
  }
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
    // An older one; the log returns to that step, too.
    run.trainer.restore(load_checkpoint(root / "step-00000010"));
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

TEST_CASE("Trainer made under InferenceMode trains outside it", "[trainer]") {
  auto model = test::make_bigram();
  const auto served = [&] {
    const c10::InferenceMode inference;
    return std::make_unique<Trainer>(model, test::loss_of(model), test::squares(200), test::squares(60),
                                     small());
  }();
  Run run;
  const auto train = [](Trainer& trainer) {
    at::manual_seed(5);  // seeds dropout
    std::vector<double> losses;
    for (int n = 0; n < 3; ++n) {
      trainer.step();
      const c10::InferenceMode inference;
      losses.push_back(*trainer.validate());
    }
    return losses;
  };
  CHECK(train(*served) == train(run.trainer));
  CHECK(equal(served->checkpoint(), run.trainer.checkpoint()));
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
  options.shard_optimizer = true;
  CHECK(to_json(parse_trainer_options(to_json(options))) == to_json(options));
  CHECK(parse_trainer_options(to_json(options)).seed == options.seed);
  CHECK(parse_trainer_options(to_json(options)).shard_optimizer);
  CHECK(value_error([] { return parse_trainer_options("[]").steps; }) ==
        "TrainerOptions: expected a JSON object");
}

// A trainer restores a checkpoint completely or not at all.

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
  changed.steps = 60;  // without decay_steps, more steps change the learning rates
  CHECK(refused(saved, changed) == "Trainer: expected decay_steps = 30 as in the checkpoint, got 60");
  changed.decay_steps = 30;
  CHECK(refused(saved, changed) == "no error");
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

TEST_CASE("A checkpoint names its texts by the SHA-256 of their tokens as int64", "[trainer]") {
  const auto model = test::make_bigram();
  const auto longer = test::squares(150'001);  // several parts of the digest
  for (const auto dtype : {at::kLong, at::kInt, at::kByte}) {
    Trainer trainer(model, test::loss_of(model), longer.to(dtype), test::squares(60).to(dtype), small());
    trainer.step();
    const auto state = nlohmann::json::parse(trainer.checkpoint().documents.at("state.json"));
    CHECK(state["text"]["training"] == sha256(bytes_of(longer)));
    CHECK(state["text"]["validation"] == sha256(bytes_of(test::squares(60))));
  }
  Trainer alone(model, test::loss_of(model), longer, {}, small());
  alone.step();
  CHECK(nlohmann::json::parse(alone.checkpoint().documents.at("state.json"))["text"]["validation"] ==
        sha256(""));
}

TEST_CASE("Trainer is as it was after a checkpoint that does not fit in any of its parts", "[trainer]") {
  Run run;
  run.trainer.step();
  const auto saved = run.trainer.checkpoint();
  Run other;
  other.trainer.step();
  other.trainer.step();
  const auto before = test::copy_of(other.trainer.checkpoint());
  const auto refused = [&](const Checkpoint& checkpoint) {
    const auto message = value_error([&] { return other.trainer.restore(checkpoint).size(); });
    CHECK(equal(other.trainer.checkpoint(), before));
    return message;
  };
  auto damaged = saved;
  damaged.optimizer["exp_avg.table"] = damaged.optimizer.at("exp_avg.table").to(at::kMeta);
  CHECK(refused(damaged) ==
        "AdamW: \"exp_avg.table\": expected a tensor with data, got one on the meta device");
  // The states of the sampler's generator and of the dropout generators.
  const auto& text = saved.documents.at("state.json");
  const auto with = [&](const std::string& key, const std::string& hex) {
    auto changed = saved;
    auto& document = changed.documents.at("state.json");
    const auto offset = document.find('"', text.find("\"" + key + "\": \"") + key.size() + 3) + 1;
    document.replace(offset, document.find('"', offset) - offset, hex);
    return changed;
  };
  CHECK(
      refused(with("generator", "00")).starts_with("BlockSampler: expected the state of a CPU generator ("));
  CHECK(refused(with("cpu", "00")).starts_with("Trainer: expected the state of a CPU generator ("));
  const std::string nonsense(2 * at::detail::getDefaultCPUGenerator().get_state().numel(), 'f');
  CHECK(refused(with("generator", nonsense)) ==
        "BlockSampler: expected the state of a CPU generator, got other bytes");
  CHECK(refused(with("cpu", nonsense)) == "Trainer: expected the state of a CPU generator, got other bytes");
  CHECK(other.trainer.restore(saved).empty());
}

TEST_CASE("A finished run that is resumed writes nothing", "[trainer]") {
  const TemporaryFolder folder, other;
  auto options = small();
  Run run(options);
  {
    CheckpointFolder files(folder.path());
    CHECK(run.trainer.run(files, {}));
  }
  const auto names = [&] {
    auto all = names_in(folder.path());
    std::ranges::sort(all);
    return all;
  };
  const auto before = names();
  const auto notes_of = [&](Trainer& trainer, const TemporaryFolder& where) {
    std::vector<std::string> notes;
    CheckpointFolder files(where.path());
    CHECK(trainer.run(files,
                      {.log = "log.jsonl", .on_note = [&](const auto& note) { notes.push_back(note); }}));
    return notes.size();
  };
  Run resumed(options);
  resumed.trainer.restore(load_checkpoint(folder.path()));
  CHECK(notes_of(resumed.trainer, folder) == 0);
  CHECK(names() == before);
  // A folder without this state gets a checkpoint of it.
  CHECK(notes_of(resumed.trainer, other) == 1);
  CHECK(load_checkpoint(other.path()).step == 30);
  // So does a folder whose latest checkpoint has another state.
  auto shorter = options;
  shorter.decay_steps = 30;
  shorter.steps = 20;
  Run earlier(shorter);
  const TemporaryFolder behind;
  CHECK(notes_of(earlier.trainer, behind) > 0);
  CHECK(notes_of(resumed.trainer, behind) == 1);
  CHECK(load_checkpoint(behind.path()).step == 30);
  // So does a folder from which the trainer was restored before the latest updates.
  options.decay_steps = 30;
  options.steps = 31;
  Run longer(options);
  longer.trainer.restore(load_checkpoint(folder.path()));
  longer.trainer.step();
  CHECK(notes_of(longer.trainer, folder) == 1);
  CHECK(load_checkpoint(folder.path()).step == 31);
  // A damaged checkpoint does not count.
  Run damaged(options);
  damaged.trainer.restore(load_checkpoint(folder.path()));
  std::ofstream(folder / "latest") << "none";
  CHECK(notes_of(damaged.trainer, folder) == 1);
  CHECK(load_checkpoint(folder.path()).step == 31);
}

using Catch::Matchers::WithinAbs;

TEST_CASE("CosineSchedule warms up and falls along half a cosine", "[schedule]") {
  const CosineSchedule schedule{.peak = 1e-3, .floor = 1e-4, .warmup = 100, .total = 2000};
  CHECK_THAT(schedule.at(0), WithinAbs(1e-3 / 101, 1e-15));
  CHECK_THAT(schedule.at(99), WithinAbs(1e-3 * 100 / 101, 1e-15));
  CHECK_THAT(schedule.at(100), WithinAbs(1e-3, 1e-15));
  CHECK_THAT(schedule.at(1050), WithinAbs(5.5e-4, 1e-15));  // half way: the mean of both ends
  CHECK_THAT(schedule.at(575), WithinAbs(1e-4 + 9e-4 * (1 + std::sqrt(0.5)) / 2, 1e-15));
  CHECK_THAT(schedule.at(2000), WithinAbs(1e-4, 1e-15));
  CHECK_THAT(schedule.at(5000), WithinAbs(1e-4, 1e-15));
  for (int64_t step = 100; step < 2000; ++step) CHECK(schedule.at(step + 1) < schedule.at(step));
}

TEST_CASE("CosineSchedule refuses settings without meaning", "[schedule]") {
  using test::value_error;
  CHECK(value_error([] { return CosineSchedule{.peak = 1e-4, .floor = 1e-3}.at(0); }) ==
        "CosineSchedule: expected 0 <= floor <= peak, got floor = 0.001, peak = 0.0001");
  CHECK(value_error([] { return CosineSchedule{.peak = NAN}.at(0); }) ==
        "CosineSchedule: expected 0 <= floor <= peak, got floor = 0, peak = nan");
  CHECK(value_error([] { return CosineSchedule{.warmup = -1}.at(0); }) ==
        "CosineSchedule: expected warmup >= 0 and total >= 0, got -1 and 0");
}
