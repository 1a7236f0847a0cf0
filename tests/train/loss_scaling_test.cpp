#include <cmath>
#include <limits>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/train/adamw.h>
#include <attentive/train/loss_scaler.h>
#include <attentive/train/trainer.h>

#include "support/compare.h"
#include "support/errors.h"
#include "support/files.h"
#include "support/thread_group.h"
#include "train/train_support.h"

using namespace attentive;
using attentive::test::kInfinity;
using attentive::test::value_error;

namespace {

LossScaling dynamic(double initial, int64_t interval = 2000) {
  return {.mode = LossScalingMode::Dynamic, .initial = initial, .interval = interval};
}

// Whether the gradients of an update overflow; a pattern without a period that matters.
bool overflows(int64_t update) {
  return update % 7 == 3 || update % 31 < 2;
}

}  // namespace

TEST_CASE("LossScaler has the scales and skipped updates of torch.amp.GradScaler", "[loss_scaler]") {
  // Written out: 65536, halved by an overflow, doubled after three updates in a row.
  LossScaler written(dynamic(65536, 3));
  std::vector<double> scales;
  std::vector<bool> done;
  for (const bool overflow : {false, true, true, false, false, true, false, false, false, false}) {
    scales.push_back(written.factor());
    done.push_back(written.update(overflow ? kInfinity : 1.5));
  }
  CHECK(scales == std::vector<double>{65536, 65536, 32768, 16384, 16384, 16384, 8192, 8192, 8192, 16384});
  CHECK(done == std::vector<bool>{true, false, false, true, true, false, true, true, true, true});
  CHECK(written.state().finite_updates == 1);

  for (const auto& options : {LossScaling{}, dynamic(0x1p127, 1), dynamic(0x1p30, 4),
                              LossScaling{.initial = 0.1, .growth = 1.7, .backoff = 0.3, .interval = 1}}) {
    INFO("initial " << options.initial << ", interval " << options.interval);
    LossScaler scaler(options);
    auto scale = at::full({}, options.initial, at::kFloat), tracker = at::zeros({}, at::kInt);
    for (int64_t update = 0; update < 200 && (scaler.can_shrink() || !overflows(update)); ++update) {
      REQUIRE(scaler.factor() == scale.item<double>());
      CHECK(scaler.update(overflows(update) ? NAN : 0.0) == !overflows(update));
      at::_amp_update_scale_(scale, tracker, at::full({}, overflows(update), at::kFloat), options.growth,
                             options.backoff, options.interval);
      CHECK(scaler.state().finite_updates == tracker.item<int64_t>());
    }
  }
}

TEST_CASE("LossScaler multiplies a loss and its gradient", "[loss_scaler]") {
  const LossScaler scaler;
  CHECK(scaler.factor() == 65536);
  const auto x = at::full({}, 3.0).requires_grad_(true);
  scaler.scale(x * 2).backward();
  CHECK(x.grad().item<double>() == 2 * 65536);
  // Float16 has no number as large as the scaled loss.
  CHECK(scaler.scale(at::full({}, 2.0, at::kHalf)).item<double>() == 2 * 65536);
  CHECK(scaler.scale(at::full({}, 2.0, at::kDouble)).scalar_type() == at::kDouble);
  LossScaler off({.mode = LossScalingMode::Off, .initial = -1});
  CHECK(off.factor() == 1);
  CHECK(off.scale(x).is_same(x));
  CHECK(off.update(7));
  LossScaler fixed({.mode = LossScalingMode::Fixed, .initial = 8, .interval = 1});
  CHECK(fixed.update(1));
  CHECK(fixed.factor() == 8);
}

TEST_CASE("LossScaler skips no update of finite float16 gradients, whatever their norm", "[loss_scaler]") {
  struct Numbers : torch::nn::Module {
    Numbers() { numbers = register_parameter("numbers", at::zeros({64}, at::kHalf)); }
    at::Tensor numbers;
  } model;
  AdamW optimizer(model);
  LossScaler scaler(dynamic(8192, 100));
  scaler.scale((model.numbers * 4).sum()).backward();
  CHECK(model.numbers.grad().eq(32768).all().item<bool>());
  const auto norm = optimizer.clip(1.0, scaler.factor()).item<double>();  // scaled, it is 262144
  CHECK(norm == 32);
  CHECK(scaler.update(norm));
  optimizer.step();
  CHECK(scaler.factor() == 8192);
  CHECK(model.numbers.ne(0).all().item<bool>());
}

TEST_CASE("LossScaler goes on from a state", "[loss_scaler]") {
  LossScaler whole(dynamic(1024, 3)), second(dynamic(1024, 3));
  for (int64_t update = 0; update < 5; ++update) whole.update(overflows(update) ? kInfinity : 1);
  second.load_state(whole.state());
  for (int64_t update = 5; update < 40; ++update) {
    CHECK(second.factor() == whole.factor());
    CHECK(second.update(overflows(update) ? kInfinity : 1) ==
          whole.update(overflows(update) ? kInfinity : 1));
  }
  const auto refused = [](LossScaling options, LossScalerState state) {
    LossScaler scaler(options);
    const auto message = value_error([&] { return scaler.load_state(state), 0; });
    CHECK(scaler.factor() == options.initial);
    return message;
  };
  CHECK(refused(dynamic(8), {.scale = 0}) ==
        "LossScaler: expected scale to be a positive number of float32, got 0");
  CHECK(refused(dynamic(8), {.scale = 1e39}) ==
        "LossScaler: expected scale to be a positive number of float32, got 1e+39");
  CHECK(refused(dynamic(8, 5), {.scale = 4, .finite_updates = 5}) ==
        "LossScaler: expected finite_updates from 0 to 4, got 5");
  CHECK(refused(dynamic(8, 5), {.scale = 4, .finite_updates = -1}) ==
        "LossScaler: expected finite_updates from 0 to 4, got -1");
  CHECK(refused({.mode = LossScalingMode::Fixed, .initial = 8}, {.scale = 4}) ==
        "LossScaler: expected scale to be that of the options, 8, got 4");
}

TEST_CASE("LossScaler refuses options, losses and gradients without meaning, by name", "[loss_scaler]") {
  const auto refused = [](LossScaling options) {
    return value_error([&] { return LossScaler(options).factor(); });
  };
  for (const auto& [initial, printed] :
       {std::pair{0.0, "0"}, {-1.0, "-1"}, {1e39, "1e+39"}, {1e-60, "1e-60"}, {double(NAN), "nan"}}) {
    CHECK(refused({.initial = initial}) ==
          std::string("LossScaler: expected initial to be a positive number of float32, got ") + printed);
  }
  CHECK(refused({.growth = 1}) == "LossScaler: expected growth > 1, got 1");
  CHECK(refused({.growth = kInfinity}) == "LossScaler: expected growth > 1, got inf");
  CHECK(refused({.backoff = 1}) == "LossScaler: expected backoff between 0 and 1, got 1");
  CHECK(refused({.backoff = 0}) == "LossScaler: expected backoff between 0 and 1, got 0");
  CHECK(refused({.interval = 0}) == "LossScaler: expected interval > 0, got 0");
  CHECK(test::type_error([] { return LossScaler().scale(at::ones({}, at::kLong)).dim(); }) ==
        "LossScaler: expected loss of dtype Double, Float, BFloat16 or Half, got Long tensor of shape ()");
  CHECK(value_error([] { return LossScaler().scale({}).dim(); }) ==
        "LossScaler: expected loss to be a tensor, got an undefined one");
  // A smaller scale cannot help any more, or is not wanted.
  LossScaler smallest(dynamic(0x1p-13));
  CHECK_FALSE(smallest.update(kInfinity));
  CHECK(smallest.factor() == 0x1p-14);
  CHECK(value_error([&] { return smallest.update(kInfinity); }) ==
        "LossScaler: expected gradients with a finite norm, got inf with the scale 6.10352e-05");
  CHECK(smallest.factor() == 0x1p-14);
  LossScaler fixed({.mode = LossScalingMode::Fixed, .initial = 8});
  CHECK(value_error([&] { return fixed.update(NAN); }) ==
        "LossScaler: expected gradients with a finite norm, got nan with the scale 8");
}

// A trainer whose losses are scaled. Groups of processes are simulated by threads.

using attentive::test::equal;
using attentive::test::equally_trained;
using attentive::test::run_threads;

namespace {

// A model with a product, which float16 autocast computes in float16. `gain` multiplies its loss.
struct Product : torch::nn::Module {
  explicit Product(double gain_ = 1) : gain(gain_) {
    at::manual_seed(3);
    table = register_parameter("table", at::randn({7, 16}));
    weight = register_parameter("weight", at::randn({7, 16}));
    bias = register_parameter("bias", at::randn({7}));
  }
  at::Tensor loss(const at::Tensor& x, const at::Tensor& y) {
    const auto logits = at::linear(at::embedding(table, x).flatten(0, 1), weight, bias);
    return at::cross_entropy_loss(logits, y.flatten()) * gain;
  }
  double gain;
  at::Tensor table, weight, bias;
};

BatchLoss loss_of(const std::shared_ptr<Product>& model) {
  return [model](const at::Tensor& x, const at::Tensor& y) { return model->loss(x, y); };
}

TrainerOptions in_float16(LossScaling scaling = {}) {
  auto options = test::small();
  options.autocast = at::kHalf;
  options.loss_scaling = scaling;
  return options;
}

// Gradients overflow in the first updates; later the scale grows every four updates, until they do again.
TrainerOptions overflowing() {
  return in_float16({.initial = 0x1p26, .interval = 4});
}

struct ScaledRun {
  explicit ScaledRun(const TrainerOptions& options, double gain = 1,
                     const std::shared_ptr<TrainingGroup>& group = nullptr)
      : model(std::make_shared<Product>(gain)),
        trainer(model, loss_of(model), test::squares(200), test::squares(60), options, group) {}
  std::shared_ptr<Product> model;
  Trainer trainer;
};

struct Trained {
  std::vector<LogRow> rows = {};
  Checkpoint state = {};
};

Trained train_scaled(const TrainerOptions& options, int64_t steps,
                     const std::shared_ptr<TrainingGroup>& group = nullptr) {
  ScaledRun run(options, 1, group);
  Trained result;
  for (int64_t i = 0; i < steps; ++i) result.rows.push_back(run.trainer.step());
  result.state = test::copy_of(run.trainer.checkpoint());
  return result;
}

int64_t skipped(const std::vector<LogRow>& rows) {
  return std::ranges::count_if(rows, &LogRow::skipped);
}

// Whether a number is equal, or neither is finite: a norm may be Inf or NaN.
bool same(double a, double b) {
  return std::isfinite(a) ? a == b : !std::isfinite(b);
}

bool same_rows(const std::vector<LogRow>& a, const std::vector<LogRow>& b) {
  return std::ranges::equal(a, b, [](const LogRow& x, const LogRow& y) {
    return x.step == y.step && x.loss == y.loss && same(x.gradient_norm, y.gradient_norm) &&
           x.learning_rate == y.learning_rate && x.loss_scale == y.loss_scale;
  });
}

}  // namespace

TEST_CASE("A trainer skips updates whose gradients overflow float16, and the scale grows again",
          "[loss_scaling]") {
  ScaledRun run(overflowing());
  LossScaler expected({.initial = 0x1p26, .interval = 4});
  int64_t skips = 0;
  for (int64_t step = 1; step <= 30; ++step) {
    const auto before = test::copy_of(run.trainer.checkpoint());
    const auto row = run.trainer.step();
    const auto after = run.trainer.checkpoint();
    CHECK(row.step == step);
    CHECK(std::isfinite(row.loss));
    CHECK(row.loss_scale == expected.factor());
    CHECK(row.skipped() == !std::isfinite(row.gradient_norm));
    CHECK(expected.update(row.gradient_norm) == !row.skipped());
    // The moments include the optimizer's own count of updates.
    CHECK(test::equal_tensors(before.model, after.model) == row.skipped());
    CHECK(test::equal_tensors(before.optimizer, after.optimizer) == row.skipped());
    if (row.skipped()) ++skips;
    if (step == 1) CHECK(row.skipped());
  }
  CHECK(run.trainer.steps_done() == 30);
  CHECK(skips >= 5);
  CHECK(skips <= 15);
  // An update that was skipped counts for the learning rate.
  auto unscaled = overflowing();
  unscaled.loss_scaling.mode = LossScalingMode::Off;
  const auto rows = train_scaled(unscaled, 30).rows, scaled = train_scaled(overflowing(), 30).rows;
  for (size_t i = 0; i < 30; ++i) {
    CHECK(rows[i].learning_rate == scaled[i].learning_rate);
    CHECK_FALSE(rows[i].loss_scale.has_value());
  }
}

TEST_CASE("A skipped update always has a row in the log", "[loss_scaling]") {
  const TemporaryFolder root;
  auto options = overflowing();
  options.log_every = 1000;
  options.evaluate_every = 0;
  ScaledRun run(options);
  CheckpointFolder folder(root.path());
  std::vector<LogRow> rows;
  Trainer::RunOptions run_options;
  run_options.on_step = [&](const LogRow& row) { rows.push_back(row); };
  CHECK(run.trainer.run(folder, run_options));
  std::erase_if(rows, [](const LogRow& row) { return !row.skipped() && row.step != 30; });
  CHECK(rows.size() > 4);
  CHECK(same_rows(read_log(root / "log.csv"), rows));
}

TEST_CASE("A run with a scaled loss goes on from a checkpoint bit for bit", "[loss_scaling]") {
  const auto whole = train_scaled(overflowing(), 30);
  for (const int64_t saved_at : {1, 2, 12, 19}) {
    INFO("saved at step " << saved_at);
    const TemporaryFolder folder;
    CheckpointFolder(folder.path()).save(train_scaled(overflowing(), saved_at).state);
    ScaledRun second(overflowing());
    CHECK(second.trainer.restore(load_checkpoint(folder.path())).empty());
    std::vector<LogRow> rows;
    while (second.trainer.steps_done() < 30) rows.push_back(second.trainer.step());
    CHECK(same_rows(rows, {whole.rows.begin() + saved_at, whole.rows.end()}));
    CHECK(equal(second.trainer.checkpoint(), whole.state));
  }
}

TEST_CASE("Two processes with a scaled loss equal one that accumulates two passes, in every bit",
          "[loss_scaling][training_group]") {
  auto options = overflowing();
  options.accumulate = 2;
  const auto one = train_scaled(options, 30);
  CHECK(skipped(one.rows) >= 5);
  CHECK(skipped(one.rows) <= 15);
  for (const bool sharded : {false, true}) {
    INFO("moments in shares: " << sharded);
    options.shard_optimizer = sharded;
    // Made one after another, because initial weights come from a global generator.
    std::vector<std::shared_ptr<Product>> models{std::make_shared<Product>(), std::make_shared<Product>()};
    std::vector<Trained> two(2);
    const auto errors = run_threads(2, [&](const std::shared_ptr<TrainingGroup>& group) {
      const auto rank = static_cast<size_t>(group->rank());
      const auto& model = models[rank];
      Trainer trainer(model, loss_of(model), test::squares(200), test::squares(60), options, group);
      for (int64_t i = 0; i < 30; ++i) two[rank].rows.push_back(trainer.step());
      two[rank].state = test::copy_of(trainer.checkpoint());
    });
    CHECK(errors == std::vector<std::string>{"no error", "no error"});
    CHECK(equal(two[0].state, two[1].state));
    for (const auto& each : two) {
      CHECK(same_rows(each.rows, one.rows));
      CHECK(equally_trained(each.state, one.state));
    }
  }
}

TEST_CASE("A scale that is a power of two changes no bit of a float32 run, with clipping", "[loss_scaling]") {
  for (const double clip : {0.0, 0.05, 100.0}) {
    for (const int64_t accumulate : {1, 2}) {
      INFO("clip " << clip << ", accumulate " << accumulate);
      auto options = test::small();
      options.clip = clip;
      options.accumulate = accumulate;
      const auto unscaled = train_scaled(options, 20);
      options.loss_scaling = {.mode = LossScalingMode::Dynamic, .interval = 3};
      const auto scaled = train_scaled(options, 20);
      CHECK(equally_trained(scaled.state, unscaled.state));
      for (size_t i = 0; i < 20; ++i) CHECK(scaled.rows[i].gradient_norm == unscaled.rows[i].gradient_norm);
      CHECK(scaled.rows.back().loss_scale == 65536 * 64);
    }
  }
}

TEST_CASE("Gradients below the smallest number of float16 survive", "[loss_scaling]") {
  constexpr double kGain = 1e-7;
  auto options = in_float16();
  options.clip = 0;
  auto unscaled = options, exact = options;
  unscaled.loss_scaling.mode = LossScalingMode::Off;
  exact.autocast.reset();
  const auto norm_of = [&](const TrainerOptions& of) {
    return ScaledRun(of, kGain).trainer.step().gradient_norm;
  };
  const auto norm = norm_of(exact);
  CHECK(norm > 1e-8);
  CHECK(norm_of(unscaled) == 0);
  CHECK(std::abs(norm_of(options) - norm) < 0.01 * norm);
}

TEST_CASE("A trainer scales losses by itself in float16 alone, and stores what it does", "[loss_scaling]") {
  const auto mode = [](std::optional<at::ScalarType> autocast) {
    auto options = in_float16();
    options.autocast = autocast;
    ScaledRun run(options);
    const auto text = run.trainer.checkpoint().documents.at("state.json");
    CHECK((text.find("\"loss_scaler\"") != std::string::npos) == run.trainer.step().loss_scale.has_value());
    return run.trainer.options().loss_scaling.mode;
  };
  CHECK(mode(at::kHalf) == LossScalingMode::Dynamic);
  CHECK(mode(at::kBFloat16) == LossScalingMode::Off);
  CHECK(mode(std::nullopt) == LossScalingMode::Off);
  const LossScaling scaling{
      .mode = LossScalingMode::Fixed, .initial = 3, .growth = 4, .backoff = 0.1, .interval = 5};
  const auto read = parse_trainer_options(to_json(in_float16(scaling))).loss_scaling;
  CHECK(read.mode == scaling.mode);
  CHECK(read.initial == scaling.initial);
  CHECK(read.growth == scaling.growth);
  CHECK(read.backoff == scaling.backoff);
  CHECK(read.interval == scaling.interval);
}

TEST_CASE("A trainer ends where no smaller scale may help, and leaves the parameters", "[loss_scaling]") {
  const auto failing = [](LossScaling scaling, double gain) {
    ScaledRun run(in_float16(scaling), gain);
    const auto before = test::copy_of(run.trainer.checkpoint());
    const auto message = value_error([&] { run.trainer.step(); });
    CHECK(test::equal_tensors(run.trainer.checkpoint().model, before.model));
    CHECK(run.trainer.steps_done() == 0);
    return message;
  };
  const auto ends = [](const std::string& message, const std::string& end) {
    INFO(message);
    return message.starts_with("Trainer: expected a finite loss and gradient at step 1, got ") &&
           message.ends_with(end);
  };
  const std::string advice = "; a lower learning rate or stronger clipping may help";
  CHECK(ends(failing({.mode = LossScalingMode::Fixed, .initial = 0x1p30}, 1),
             " with the loss scale 1073741824" + advice));
  CHECK(ends(failing({.initial = 0x1p-14}, 1e12), " with the loss scale 6.103515625e-05" + advice));
  CHECK(ends(failing({}, INFINITY), " with the loss scale 65536" + advice));
  CHECK(ends(failing({.mode = LossScalingMode::Off}, 1e12), advice));
  CHECK(value_error([] { ScaledRun(in_float16({.interval = 0})); }) ==
        "LossScaler: expected interval > 0, got 0");
}

TEST_CASE("A trainer refuses a checkpoint whose scale does not fit, and stays as it was", "[loss_scaling]") {
  const auto saved = train_scaled(overflowing(), 12).state;
  ScaledRun other(overflowing());
  other.trainer.step();
  const auto before = test::copy_of(other.trainer.checkpoint());
  const auto refused = [&](const std::string& find, const std::string& replace) {
    auto changed = saved;
    auto& text = changed.documents.at("state.json");
    REQUIRE(text.find(find) != std::string::npos);
    text.replace(text.find(find), find.size(), replace);
    const auto message = value_error([&] { other.trainer.restore(changed); });
    CHECK(equal(other.trainer.checkpoint(), before));
    return message;
  };
  CHECK(refused("\"loss_scaler\"", "\"other\"").starts_with("Trainer: state.json: "));
  CHECK(refused("\"scale\"", "\"other\"") == "Trainer: expected a member \"scale\"");
  CHECK(refused("\"scale\": ", "\"scale\": -")
            .starts_with("LossScaler: expected scale to be a positive number of float32, got -"));
  CHECK(refused("\"finite_updates\": ", "\"finite_updates\": 9")
            .starts_with("LossScaler: expected finite_updates from 0 to 3, got 9"));
  auto options = overflowing();
  options.loss_scaling.mode = LossScalingMode::Off;
  CHECK(value_error([&] { ScaledRun(options).trainer.restore(saved); }) ==
        "Trainer: expected loss_scaling_mode = \"dynamic\" as in the checkpoint, got \"off\"");
}

TEST_CASE("A float16 run from before losses were scaled goes on without", "[loss_scaling]") {
  auto options = in_float16({.mode = LossScalingMode::Off});
  const auto whole = train_scaled(options, 8);
  auto saved = train_scaled(options, 5).state;
  auto& text = saved.documents.at("trainer.json");
  for (size_t offset; (offset = text.find(" \"loss_scaling_")) != std::string::npos;)
    text.erase(offset, text.find('\n', offset) + 1 - offset);
  CHECK(parse_trainer_options(text).loss_scaling.mode == LossScalingMode::Off);
  ScaledRun run(options);
  CHECK(run.trainer.restore(saved).empty());
  while (run.trainer.steps_done() < 8) run.trainer.step();
  CHECK(equal(run.trainer.checkpoint(), whole.state));
  CHECK(value_error([&] { ScaledRun(in_float16()).trainer.restore(saved); }) ==
        "Trainer: expected loss_scaling_mode = \"off\" as in the checkpoint, got \"dynamic\"");
}

TEST_CASE("Autocast computes products in the lower precision and puts everything back", "[autocast]") {
  const auto a = at::randn({4, 4});
  const auto product = [&] { return at::mm(a, a).scalar_type(); };
  {
    const Autocast none(at::kCPU, std::nullopt);
    CHECK(product() == at::kFloat);
  }
  {
    const Autocast outer(at::kCPU, at::kBFloat16);
    CHECK(product() == at::kBFloat16);
    {
      const Autocast inner(at::kCPU, at::kHalf);
      CHECK(product() == at::kHalf);
    }
    CHECK(product() == at::kBFloat16);
  }
  CHECK(product() == at::kFloat);
  CHECK_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
  CHECK(test::value_error([] { return Autocast(at::kMeta, at::kHalf), 0; }) ==
        "Autocast: expected the device CPU or CUDA, got meta");
  CHECK(test::value_error([] { return Autocast(at::kCPU, at::kDouble), 0; }) ==
        "Autocast: expected the type BFloat16 or Half, got Double");
}
