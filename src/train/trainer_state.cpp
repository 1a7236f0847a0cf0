// Converts a trainer's state to a checkpoint and back.

#include <ATen/Parallel.h>
#include <ATen/ops/full.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <attentive/train/trainer.h>

#include "base/strings.h"
#include "files/option_json.h"
#include "train/agreement.h"
#include "train/dropout_generators.h"
#include "train/model_state.h"
#include "train/tensor_memory.h"

namespace attentive {
namespace {

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

}  // namespace attentive
