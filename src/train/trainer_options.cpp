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
  object.emplace("shard_optimizer", false);  // missing in checkpoints that are older than this option
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
