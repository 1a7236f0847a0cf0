#include <algorithm>
#include <chrono>
#include <cmath>
#include <numbers>

#include <ATen/Parallel.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <attentive/train/adamw.h>
#include <attentive/train/loss_scaler.h>
#include <attentive/train/trainer.h>
#include <attentive/train/training_log.h>

#include "base/strings.h"
#include "core/check.h"
#include "files/option_json.h"
#include "train/agreement.h"
#include "train/run_state.h"
#include "train/sha256.h"

namespace attentive {
namespace {

constexpr const char* kTrainerOptions = "TrainerOptions";

}  // namespace

std::string to_json(const TrainerOptions& options) {
  auto object = option_object(options);
  object["autocast"] = !options.autocast ? "none" : *options.autocast == at::kHalf ? "float16" : "bfloat16";
  return object.dump(1) + '\n';
}

TrainerOptions parse_trainer_options(const std::string& json) {
  auto object = parse_option_object(kTrainerOptions, json);
  // Checkpoints that are older than these options lack them.
  const auto earlier = option_object(TrainerOptions{.loss_scaling = {.mode = LossScalingMode::Off}});
  for (const char* name : {"shard_optimizer", "loss_scaling_mode", "loss_scaling_initial",
                           "loss_scaling_growth", "loss_scaling_backoff", "loss_scaling_interval"}) {
    object.emplace(name, earlier.at(name));
  }
  TrainerOptions options;
  each_option(options, OptionReader(kTrainerOptions, object));
  const auto autocast = object.value("autocast", nlohmann::json());
  TORCH_CHECK_VALUE(autocast == "none" || autocast == "bfloat16" || autocast == "float16", kTrainerOptions,
                    ": expected \"autocast\" to be \"none\", \"bfloat16\" or \"float16\", got ",
                    autocast.dump());
  if (autocast != "none") options.autocast = autocast == "float16" ? at::kHalf : at::kBFloat16;
  return options;
}

namespace {

constexpr const char* kTrainer = "Trainer";

const std::shared_ptr<torch::nn::Module>& checked(const std::shared_ptr<torch::nn::Module>& model) {
  TORCH_CHECK_VALUE(model, kTrainer, ": expected a model, got none");
  return model;
}

CosineSchedule schedule_of(const TrainerOptions& options) {
  return {options.learning_rate, options.min_learning_rate, options.warmup,
          options.decay_steps > 0 ? options.decay_steps : options.steps};
}

void check(const TrainerOptions& options) {
  const auto positive = [](const char* name, int64_t value) {
    TORCH_CHECK_VALUE(value > 0, kTrainer, ": expected ", name, " > 0, got ", value);
  };
  const auto not_negative = [](const char* name, double value) {
    TORCH_CHECK_VALUE(value >= 0, kTrainer, ": expected ", name, " >= 0, got ", value);
  };
  positive("steps", options.steps);
  positive("accumulate", options.accumulate);
  not_negative("decay_steps", static_cast<double>(options.decay_steps));
  not_negative("clip", options.clip);
  not_negative("evaluate_every", static_cast<double>(options.evaluate_every));
  not_negative("save_every", static_cast<double>(options.save_every));
  not_negative("keep", static_cast<double>(options.keep));
  positive("log_every", options.log_every);
  (void)schedule_of(options).at(0);  // throws for invalid rates
}

// The SHA-256 of the tokens as int64, whatever their dtype. They are converted in parts, so that tokens in a
// mapped file need no copy.
std::string hash_of(const at::Tensor& tokens) {
  constexpr int64_t kPart = 1 << 16;
  Sha256 sum;
  for (int64_t offset = 0, count = tokens.defined() ? tokens.size(0) : 0; offset < count; offset += kPart) {
    sum.add(bytes_of(tokens.narrow(0, offset, std::min(kPart, count - offset)).to(at::kLong)));
  }
  return sum.digest();
}

bool due(int64_t step, int64_t every) {
  return every > 0 && step % every == 0;
}

// Whether processes share the passes of an update; otherwise they share the rows of each pass.
bool shares_passes(const TrainerOptions& options, const TrainingGroup& group) {
  return options.accumulate % group.size() == 0;
}

BlockSamplerOptions sampler_options(const TrainerOptions& options, const TrainingGroup& group) {
  BlockSamplerOptions sampler{options.block, options.batch, options.seed};
  if (shares_passes(options, group)) return sampler;
  TORCH_CHECK_VALUE(options.batch % group.size() == 0, kTrainer,
                    ": expected accumulate or batch to be a multiple of the number of processes, ",
                    group.size(), ", got ", options.accumulate, " and ", options.batch,
                    ": change one of the three");
  sampler.rank = group.rank();
  sampler.world_size = group.size();
  return sampler;
}

std::unique_ptr<AdamWBase> make_optimizer(const torch::nn::Module& model, const TrainerOptions& options,
                                          const std::shared_ptr<TrainingGroup>& group) {
  const AdamWOptions adamw{options.learning_rate, options.beta1, options.beta2, 1e-8, options.weight_decay};
  if (options.shard_optimizer) return std::make_unique<ShardedAdamW>(model, group, adamw);
  return std::make_unique<AdamW>(model, adamw);
}

LossScaling scaling_of(const TrainerOptions& options) {
  auto scaling = options.loss_scaling;
  if (scaling.mode == LossScalingMode::Auto) {
    scaling.mode = options.autocast == at::kHalf ? LossScalingMode::Dynamic : LossScalingMode::Off;
  }
  return scaling;
}

// The mean loss of all passes, summed in the same order and dtype in any number of processes, float32 for
// half types. losses: of the passes of each process.
double mean_loss(const std::vector<at::Tensor>& losses, at::ScalarType given) {
  const auto dtype = c10::promoteTypes(given, at::kFloat);
  const auto passes = losses[0].numel();
  const auto parts = static_cast<double>(passes * static_cast<int64_t>(losses.size()));
  at::Tensor sum;
  for (int64_t pass = 0; pass < passes; ++pass) {
    for (const auto& of_process : losses) {
      const auto part = of_process[pass].to(dtype) / parts;
      sum = sum.defined() ? sum + part : part;
    }
  }
  return sum.item<double>();
}

}  // namespace

Trainer::Trainer(std::shared_ptr<torch::nn::Module> model, BatchLoss loss, at::Tensor training,
                 at::Tensor validation, TrainerOptions options, std::shared_ptr<TrainingGroup> group)
    : model_(checked(model)),
      loss_(std::move(loss)),
      training_(std::move(training)),
      validation_(std::move(validation)),
      options_((check(options), options)),
      group_(group_or_alone(std::move(group))),
      sampler_(training_, sampler_options(options, *group_)) {
  TORCH_CHECK_VALUE(loss_, kTrainer, ": expected a loss function, got none");
  if (options_.decay_steps == 0) options_.decay_steps = options_.steps;
  options_.loss_scaling = scaling_of(options_);
  scaler_ = LossScaler(options_.loss_scaling);
  if (validation_.defined() && validation_.numel() == 0) validation_.reset();
  TORCH_CHECK_VALUE(!validation_.defined() || (validation_.dim() == 1 && validation_.size(0) >= 2 &&
                                               at::isIntegralType(validation_.scalar_type(), false)),
                    kTrainer,
                    ": expected a validation text of at least 2 tokens, integers of shape (N,), got ",
                    describe(validation_));
  training_hash_ = hash_of(training_);
  validation_hash_ = hash_of(validation_);
  check_agreement(kTrainer, *group_,
                  {{"options of the model", printed_options(*model_), /*quoted=*/true},
                   {"options", to_json(options_), /*quoted=*/true},
                   {"tokens to learn", training_hash_},
                   {"tokens to validate", validation_hash_}});
  gradients_ = group_->average_gradients(*model_);
  optimizer_ = make_optimizer(*model_, options_, group_);
  seed_by_rank(options_.device, group_->rank());
}

std::pair<at::Tensor, at::Tensor> Trainer::next_rows() {
  if (!shares_passes(options_, *group_)) return sampler_.next();
  // Every process skips the batches of the others, so that all samplers have the same position after an
  // update.
  sampler_.skip(group_->rank());
  auto rows = sampler_.next();
  sampler_.skip(group_->size() - 1 - group_->rank());
  return rows;
}

at::Tensor Trainer::forward() {
  const auto [x, y] = next_rows();
  const Autocast autocast(options_.device.type(), options_.autocast);
  auto loss = loss_(x.to(options_.device), y.to(options_.device));
  check_loss(kTrainer, loss);
  TORCH_CHECK_VALUE(loss.requires_grad(), kTrainer, ": expected a loss with a gradient, got one without");
  return loss;
}

Trainer::Update Trainer::update(const std::function<bool()>& stop) {
  const auto start = std::chrono::steady_clock::now();
  model_->train();
  optimizer_->zero_grad();
  const auto passes =
      shares_passes(options_, *group_) ? options_.accumulate / group_->size() : options_.accumulate;
  // Each loss is divided by this. A scaled loss is not, because float16 must round and overflow alike in any
  // number of processes; the optimizer divides the sum of its passes.
  const double divisor = scaler_.enabled() ? 1.0 : static_cast<double>(passes);
  std::vector<at::Tensor> losses;
  for (int64_t i = 0; i < passes; ++i) {
    const auto loss = forward();
    losses.push_back(loss.detach().reshape({1}));
    const auto scaled = scaler_.scale(loss);
    gradients_->backward(divisor > 1 ? scaled / divisor : scaled, i + 1 == passes);
  }
  Update result;
  std::vector<at::Tensor> all{at::cat(losses).to(at::kCPU)};
  if (group_->size() > 1) {  // the request to stop travels along
    const auto asked = at::full({1}, stop && stop() ? 1.0 : 0.0, at::kDouble);
    all = group_->gather(at::cat({all[0].to(at::kDouble), asked}));
    for (auto& other : all) {
      result.stop |= other[-1].item<double>() != 0.0;
      other = other.narrow(0, 0, passes);
    }
  }
  const auto norm = optimizer_->clip(options_.clip, scaler_.factor() * static_cast<double>(passes) / divisor);
  auto& row = result.row;
  row.step = steps_done_ + 1;
  row.loss = mean_loss(all, losses[0].scalar_type());
  row.gradient_norm = norm.item<double>();
  row.learning_rate = schedule_of(options_).at(steps_done_);
  if (scaler_.enabled()) row.loss_scale = scaler_.factor();
  TORCH_CHECK_VALUE(std::isfinite(row.loss) && (std::isfinite(row.gradient_norm) || scaler_.can_shrink()),
                    kTrainer, ": expected a finite loss and gradient at step ", row.step, ", got ", row.loss,
                    " and ", row.gradient_norm,
                    row.loss_scale ? fmt::format(" with the loss scale {}", *row.loss_scale) : "",
                    "; a lower learning rate or stronger clipping may help");
  optimizer_->options.learning_rate = row.learning_rate;
  if (scaler_.update(row.gradient_norm)) optimizer_->step();
  optimizer_->zero_grad();
  ++steps_done_;
  restored_.clear();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  row.tokens_per_second =
      static_cast<double>(options_.block * options_.batch * options_.accumulate) / seconds.count();
  return result;
}

LogRow Trainer::step() {
  return update({}).row;
}

std::optional<double> Trainer::validate() {
  if (!validation_.defined()) return std::nullopt;
  const Autocast autocast(options_.device.type(), options_.autocast);
  return evaluate(*model_, loss_, validation_, {options_.block, options_.batch, options_.device, group_});
}

bool Trainer::run(CheckpointFolder& folder, const RunOptions& run_options) {
  const bool first = group_->rank() == 0;
  if (nothing_left(folder)) return true;
  TrainingLog log(folder.path() / run_options.log, steps_done_, group_->rank());
  if (run_options.on_note) {
    for (const auto& remark : log.remarks()) run_options.on_note("note: " + remark);
  }
  int64_t saved = -1;
  const auto save = [&] {
    if (saved == steps_done_) return;
    const auto path = folder.save(make_checkpoint(run_options.documents, folder.writes()), options_.keep);
    if (first && run_options.on_note) run_options.on_note("saved " + path.string());
    saved = steps_done_;
  };
  const auto asked = [&] { return run_options.stop && run_options.stop(); };
  // A single process may stop between two updates. In a group, the request is sent along with the losses of
  // an update.
  const bool alone = group_->size() == 1;
  bool stop = false;
  while (steps_done_ < options_.steps && !stop && !(alone && asked())) {
    auto [row, stops] = update(alone ? nullptr : run_options.stop);
    stop = stops;
    const bool last = steps_done_ >= options_.steps;
    if (last || due(steps_done_, options_.evaluate_every)) row.validation_loss = validate();
    if (run_options.on_step) run_options.on_step(row);
    if (last || row.validation_loss || row.skipped() || due(steps_done_, options_.log_every)) log.add(row);
    if (first && row.validation_loss)
      save_loss_curve(folder.path() / "loss.svg", log.rows(), run_options.title);
    if (due(steps_done_, options_.save_every)) save();
  }
  save();
  return steps_done_ >= options_.steps;
}

namespace {

// Converts a trainer's state to a checkpoint and back.

constexpr const char* kTrainerName = "Trainer";
constexpr const char* kState = "state.json";
constexpr const char* kOptions = "trainer.json";
constexpr const char* kScaler = "loss_scaler";

const std::string& document(const Checkpoint& checkpoint, const char* name) {
  const auto found = checkpoint.documents.find(name);
  TORCH_CHECK_VALUE(found != checkpoint.documents.end(), kTrainerName, ": expected a checkpoint with ", name);
  return found->second;
}

// Options that a resumed run may change, because they do not affect the parameters.
bool may_change(const std::string& name) {
  return name == "steps" || name == "evaluate_every" || name == "save_every" || name == "keep" ||
         name == "log_every" || name == "shard_optimizer";
}

void check_same_options(const TrainerOptions& options, const std::string& saved_json) {
  // Parsing adds the options that an older checkpoint lacks.
  const auto saved = nlohmann::json::parse(to_json(parse_trainer_options(saved_json))),
             current = nlohmann::json::parse(to_json(options));
  for (const auto& [name, value] : current.items()) {
    TORCH_CHECK_VALUE(may_change(name) || saved.at(name) == value, kTrainerName, ": expected ", name, " = ",
                      saved.at(name).dump(), " as in the checkpoint, got ", value.dump());
  }
}

// Remarks on differences that are no reason to refuse the checkpoint.
std::vector<std::string> remarks_on(const nlohmann::json& state, const std::string& validation_hash) {
  std::vector<std::string> remarks;
  if (state.at("text").at("validation") != validation_hash) {
    remarks.emplace_back("the validation text is not that of the checkpoint: its losses cannot be compared");
  }
  if (state.at("threads") != at::get_num_threads()) {
    remarks.push_back(
        fmt::format("the checkpoint was made with {} threads, this run has {}: it will not be "
                    "equal bit for bit",
                    state.at("threads").dump(), at::get_num_threads()));
  }
  return remarks;
}

}  // namespace

Checkpoint Trainer::checkpoint(std::map<std::string, std::string> documents) const {
  return make_checkpoint(std::move(documents), /*wanted=*/true);
}

// If `wanted` is false, this process only takes part in gathering the moments.
Checkpoint Trainer::make_checkpoint(std::map<std::string, std::string> documents, bool wanted) const {
  nlohmann::json state{
      {"step", steps_done_},
      {"sampler", {{"position", sampler_.position()}, {"generator", to_hex(bytes_of(sampler_.state()))}}},
      {"generators", gather_generator_states(*group_, options_.device)},
      {"text", {{"training", training_hash_}, {"validation", validation_hash_}}},
      {"threads", at::get_num_threads()}};
  if (scaler_.enabled()) state[kScaler] = option_object(scaler_.state());
  documents[kState] = state.dump(1) + '\n';
  documents[kOptions] = to_json(options_);
  return {steps_done_, state_dict(*model_), optimizer_->state(wanted), std::move(documents)};
}

std::vector<std::string> Trainer::restore(const Checkpoint& checkpoint) {
  check_same_options(options_, document(checkpoint, kOptions));
  const auto& text = document(checkpoint, kState);
  const auto state = nlohmann::json::parse(text, nullptr, false);
  std::vector<std::string> remarks;
  try {
    TORCH_CHECK_VALUE(state.at("step") == checkpoint.step, kTrainerName, ": expected state.json of step ",
                      checkpoint.step, ", got ", state.at("step").dump());
    TORCH_CHECK_VALUE(state.at("text").at("training") == training_hash_, kTrainerName,
                      ": expected the training text of the checkpoint, got another one");
    remarks = remarks_on(state, validation_hash_);
    // Everything is checked before anything changes.
    const auto& sampler = state.at("sampler");
    const auto position = sampler.at("position").get<int64_t>();
    const auto sampler_state = to_tensor(from_hex(kTrainerName, sampler.at("generator").get<std::string>()));
    sampler_.check(position, sampler_state);
    const auto fresh_seed = derived_seed(options_.seed, static_cast<uint64_t>(checkpoint.step));
    auto dropout =
        read_generator_states(kTrainerName, state.at("generators"), *group_, options_.device, fresh_seed);
    remarks.insert(remarks.end(), dropout.remarks.begin(), dropout.remarks.end());
    check_model_state(kTrainerName, *model_, checkpoint.model);
    optimizer_->check_state(checkpoint.optimizer);
    auto scaler_state = scaler_.state();
    if (scaler_.enabled()) each_option(scaler_state, OptionReader(kTrainerName, state.at(kScaler)));
    scaler_.check_state(scaler_state);
    check_agreement(kTrainerName, *group_, {{"checkpoint", text}});

    load_model_state(kTrainerName, *model_, checkpoint.model);
    optimizer_->load_state(checkpoint.optimizer);
    scaler_.load_state(scaler_state);
    sampler_.restore(position, sampler_state);
    dropout.apply();
  } catch (const nlohmann::json::exception& error) {
    TORCH_CHECK_VALUE(false, kTrainerName, ": state.json: ", error.what());
  }
  steps_done_ = checkpoint.step;
  restored_ = text;
  return remarks;
}

// Whether all steps are done and the folder has the final checkpoint. Only rank 0 sees the folder.
bool Trainer::nothing_left(const CheckpointFolder& folder) const {
  if (steps_done_ < options_.steps || restored_.empty()) return false;
  bool saved = false;
  if (folder.writes()) {
    try {
      const auto documents = load_checkpoint_documents(folder.path());
      const auto latest = documents.find(kState);
      saved = latest != documents.end() && latest->second == restored_;
    } catch (const CheckpointError&) {  // there is no readable checkpoint: save one
    }
  }
  return group_->gather(at::full({1}, saved, at::kByte))[0].item<bool>();
}

double CosineSchedule::at(int64_t step) const {
  constexpr const char* caller = "CosineSchedule";
  TORCH_CHECK_VALUE(std::isfinite(peak) && floor >= 0.0 && floor <= peak, caller,
                    ": expected 0 <= floor <= peak, got floor = ", floor, ", peak = ", peak);
  TORCH_CHECK_VALUE(warmup >= 0 && total >= 0, caller, ": expected warmup >= 0 and total >= 0, got ", warmup,
                    " and ", total);
  if (step < warmup) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup + 1);
  if (step >= total) return floor;
  const double progress = static_cast<double>(step - warmup) / static_cast<double>(total - warmup);
  return floor + (peak - floor) * 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
}

}  // namespace attentive
