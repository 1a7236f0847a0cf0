#include <attentive/train/trainer.h>

#include "files/option_json.h"

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

}  // namespace attentive
