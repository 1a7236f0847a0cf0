#include <chrono>
#include <cmath>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <attentive/train/autocast.h>
#include <attentive/train/loss_curve.h>
#include <attentive/train/schedule.h>
#include <attentive/train/trainer.h>

#include "core/check.h"
#include "core/hex.h"
#include "train/generator_state.h"
#include "train/model_state.h"
#include "train/sha256.h"

namespace attentive {
namespace {

constexpr const char* kWho = "Trainer";
constexpr const char* kState = "state.json";
constexpr const char* kOptions = "trainer.json";

const std::shared_ptr<torch::nn::Module>& checked(const std::shared_ptr<torch::nn::Module>& model) {
  TORCH_CHECK_VALUE(model, kWho, ": expected a model, got none");
  return model;
}

CosineSchedule schedule_of(const TrainerOptions& options) {
  return {options.learning_rate, options.min_learning_rate, options.warmup,
          options.decay_steps > 0 ? options.decay_steps : options.steps};
}

void check(const TrainerOptions& options) {
  const auto positive = [](const char* name, int64_t value) {
    TORCH_CHECK_VALUE(value > 0, kWho, ": expected ", name, " > 0, got ", value);
  };
  const auto not_negative = [](const char* name, double value) {
    TORCH_CHECK_VALUE(value >= 0, kWho, ": expected ", name, " >= 0, got ", value);
  };
  positive("steps", options.steps);
  positive("accumulate", options.accumulate);
  not_negative("decay_steps", static_cast<double>(options.decay_steps));
  not_negative("clip", options.clip);
  not_negative("evaluate_every", static_cast<double>(options.evaluate_every));
  not_negative("save_every", static_cast<double>(options.save_every));
  not_negative("keep", static_cast<double>(options.keep));
  positive("log_every", options.log_every);
  (void)schedule_of(options).at(0);  // throws for rates without meaning
}

std::string bytes_of(const at::Tensor& tensor) {
  const auto flat = tensor.contiguous();
  return {static_cast<const char*>(flat.const_data_ptr()), flat.nbytes()};
}

std::string hash_of(const at::Tensor& tokens) {
  return tokens.defined() ? sha256(bytes_of(tokens.to(at::kLong))) : sha256("");
}

at::Tensor to_bytes(const std::string& hex) {
  auto bytes = from_hex(kWho, hex);
  return at::from_blob(bytes.data(), {static_cast<int64_t>(bytes.size())}, at::kByte).clone();
}

// The generators that dropout draws from.
std::map<std::string, at::Generator> default_generators(at::Device device) {
  std::map<std::string, at::Generator> generators{{"cpu", at::globalContext().defaultGenerator(at::kCPU)}};
  if (!device.is_cpu()) generators.emplace(device.str(), at::globalContext().defaultGenerator(device));
  return generators;
}

bool due(int64_t step, int64_t every) {
  return every > 0 && step % every == 0;
}

// Options that a resumed run may change: they do not decide what is learned.
bool may_change(const std::string& name) {
  return name == "steps" || name == "evaluate_every" || name == "save_every" || name == "keep" ||
         name == "log_every";
}

}  // namespace

Trainer::Trainer(std::shared_ptr<torch::nn::Module> model, BatchLoss loss, at::Tensor training,
                 at::Tensor validation, TrainerOptions options)
    : model_(checked(model)),
      loss_(std::move(loss)),
      training_(std::move(training)),
      validation_(std::move(validation)),
      options_((check(options), options)),
      optimizer_(*model_, {options.learning_rate, options.beta1, options.beta2, 1e-8, options.weight_decay}),
      sampler_(training_, {options.block, options.batch, options.seed, options.rank, options.world_size}) {
  TORCH_CHECK_VALUE(loss_, kWho, ": expected a loss function, got none");
  if (options_.decay_steps == 0) options_.decay_steps = options_.steps;
  if (validation_.defined() && validation_.numel() == 0) validation_.reset();
  TORCH_CHECK_VALUE(!validation_.defined() || (validation_.dim() == 1 && validation_.size(0) >= 2 &&
                                               at::isIntegralType(validation_.scalar_type(), false)),
                    kWho, ": expected a validation text of at least 2 tokens, integers of shape (N,), got ",
                    describe(validation_));
  training_hash_ = hash_of(training_);
  validation_hash_ = hash_of(validation_);
}

LogRow Trainer::step() {
  const auto start = std::chrono::steady_clock::now();
  model_->train();
  optimizer_.zero_grad();
  at::Tensor sum;
  for (int64_t i = 0; i < options_.accumulate; ++i) {
    const auto [x, y] = sampler_.next();
    at::Tensor loss;
    {
      const Autocast autocast(options_.device.type(), options_.autocast);
      loss = loss_(x.to(options_.device), y.to(options_.device));
    }
    check_loss(kWho, loss);
    TORCH_CHECK_VALUE(loss.requires_grad(), kWho, ": expected a loss with a gradient, got one without");
    if (options_.accumulate > 1) loss = loss / static_cast<double>(options_.accumulate);
    loss.backward();
    sum = sum.defined() ? sum + loss.detach() : loss.detach();
  }
  const auto norm = optimizer_.clip(options_.clip);
  LogRow row;
  row.step = steps_done_ + 1;
  row.loss = sum.item<double>();
  row.gradient_norm = norm.item<double>();
  row.learning_rate = schedule_of(options_).at(steps_done_);
  TORCH_CHECK_VALUE(std::isfinite(row.loss) && std::isfinite(row.gradient_norm), kWho,
                    ": expected a finite loss and gradient at step ", row.step, ", got ", row.loss, " and ",
                    row.gradient_norm, "; a lower learning rate or stronger clipping may help");
  optimizer_.options.learning_rate = row.learning_rate;
  optimizer_.step();
  optimizer_.zero_grad();
  ++steps_done_;
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  const auto tokens = options_.block * options_.batch * options_.accumulate * options_.world_size;
  row.tokens_per_second = static_cast<double>(tokens) / seconds.count();
  return row;
}

std::optional<double> Trainer::validate() {
  if (!validation_.defined()) return std::nullopt;
  const Autocast autocast(options_.device.type(), options_.autocast);
  return evaluate(*model_, loss_, validation_, {options_.block, options_.batch, options_.device});
}

Checkpoint Trainer::checkpoint(std::map<std::string, std::string> documents) const {
  nlohmann::json generators;
  for (const auto& [name, generator] : default_generators(options_.device)) {
    generators[name] = to_hex(bytes_of(generator_state(generator)));
  }
  const nlohmann::json state{
      {"step", steps_done_},
      {"sampler", {{"position", sampler_.position()}, {"generator", to_hex(bytes_of(sampler_.state()))}}},
      {"generators", generators},
      {"text", {{"training", training_hash_}, {"validation", validation_hash_}}},
      {"threads", at::get_num_threads()},
      {"world_size", options_.world_size}};
  documents[kState] = state.dump(1) + '\n';
  documents[kOptions] = to_json(options_);
  return {steps_done_, state_dict(*model_), optimizer_.state(), std::move(documents)};
}

std::vector<std::string> Trainer::restore(const Checkpoint& checkpoint) {
  const auto document = [&](const char* name) {
    const auto found = checkpoint.documents.find(name);
    TORCH_CHECK_VALUE(found != checkpoint.documents.end(), kWho, ": expected a checkpoint with ", name);
    return nlohmann::json::parse(found->second, nullptr, false);
  };
  const auto saved = document(kOptions);
  (void)parse_trainer_options(checkpoint.documents.at(kOptions));
  const auto own = nlohmann::json::parse(to_json(options_));
  for (const auto& [name, value] : own.items()) {
    TORCH_CHECK_VALUE(may_change(name) || saved.at(name) == value, kWho, ": expected ", name, " = ",
                      saved.at(name).dump(), " as in the checkpoint, got ", value.dump());
  }
  const auto state = document(kState);
  std::vector<std::string> remarks;
  try {
    TORCH_CHECK_VALUE(state.at("step") == checkpoint.step, kWho, ": expected state.json of step ",
                      checkpoint.step, ", got ", state.at("step").dump());
    TORCH_CHECK_VALUE(state.at("text").at("training") == training_hash_, kWho,
                      ": expected the training text of the checkpoint, got another one");
    TORCH_CHECK_VALUE(state.at("world_size") == options_.world_size, kWho,
                      ": expected world_size = ", state.at("world_size").dump(),
                      " as in the checkpoint, got ", options_.world_size);
    if (state.at("text").at("validation") != validation_hash_) {
      remarks.emplace_back(
          "the validation text is not that of the checkpoint: its losses cannot be compared");
    }
    if (state.at("threads") != at::get_num_threads()) {
      remarks.push_back(
          fmt::format("the checkpoint was made with {} threads, this run has {}: it will not be "
                      "equal bit for bit",
                      state.at("threads").dump(), at::get_num_threads()));
    }
    // Everything is checked before anything moves.
    const auto& sampler = state.at("sampler");
    const auto position = sampler.at("position").get<int64_t>();
    const auto sampler_state = to_bytes(sampler.at("generator").get<std::string>());
    sampler_.check(position, sampler_state);
    std::vector<std::pair<at::Generator, at::Tensor>> generators;
    for (const auto& [name, generator] : default_generators(options_.device)) {
      if (!state.at("generators").contains(name)) {
        remarks.push_back("the checkpoint has no generator state for " + name +
                          ": dropout starts over there");
        continue;
      }
      generators.emplace_back(generator, to_bytes(state.at("generators").at(name).get<std::string>()));
      check_generator_state(kWho, generator, generators.back().second);
    }
    check_model_state(kWho, *model_, checkpoint.model);
    optimizer_.check_state(checkpoint.optimizer);

    load_model_state(kWho, *model_, checkpoint.model);
    optimizer_.load_state(checkpoint.optimizer);
    sampler_.restore(position, sampler_state);
    for (auto& [generator, bytes] : generators) {
      const std::lock_guard<std::mutex> lock(generator.mutex());
      generator.set_state(bytes);
    }
  } catch (const nlohmann::json::exception& error) {
    TORCH_CHECK_VALUE(false, kWho, ": state.json: ", error.what());
  }
  steps_done_ = checkpoint.step;
  return remarks;
}

bool Trainer::run(CheckpointFolder& folder, const RunOptions& run_options) {
  const auto note = [&](const std::string& text) {
    if (run_options.on_note) run_options.on_note(text);
  };
  TrainingLog log(folder.path() / run_options.log, steps_done_, options_.rank);
  const bool first = options_.rank == 0;
  int64_t saved = -1;
  const auto save = [&] {
    if (saved == steps_done_ || !first) return;
    note("saved " + folder.save(checkpoint(run_options.documents), options_.keep).string());
    saved = steps_done_;
  };
  const auto stopped = [&] { return run_options.stop && run_options.stop(); };
  while (steps_done_ < options_.steps && !stopped()) {
    auto row = step();
    const bool last = steps_done_ >= options_.steps;
    if (last || due(steps_done_, options_.evaluate_every)) row.validation_loss = validate();
    if (run_options.on_step) run_options.on_step(row);
    if (last || row.validation_loss || due(steps_done_, options_.log_every)) log.add(row);
    if (first && row.validation_loss)
      save_loss_curve(folder.path() / "loss.svg", log.rows(), run_options.title);
    if (due(steps_done_, options_.save_every)) save();
  }
  save();
  return steps_done_ >= options_.steps;
}

}  // namespace attentive
