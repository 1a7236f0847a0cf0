#include <c10/util/Exception.h>
#include <nlohmann/json.hpp>

#include <attentive/train/trainer.h>

namespace attentive {
namespace {

constexpr const char* kWho = "TrainerOptions";

// Visits every option that a checkpoint keeps, by name: the one list for writing and reading.
template <class Options, class Visit>
void for_each_option(Options& options, Visit visit) {
  visit("steps", options.steps);
  visit("block", options.block);
  visit("batch", options.batch);
  visit("accumulate", options.accumulate);
  visit("learning_rate", options.learning_rate);
  visit("min_learning_rate", options.min_learning_rate);
  visit("warmup", options.warmup);
  visit("decay_steps", options.decay_steps);
  visit("beta1", options.beta1);
  visit("beta2", options.beta2);
  visit("weight_decay", options.weight_decay);
  visit("clip", options.clip);
  visit("seed", options.seed);
  visit("evaluate_every", options.evaluate_every);
  visit("save_every", options.save_every);
  visit("keep", options.keep);
  visit("log_every", options.log_every);
}

}  // namespace

std::string to_json(const TrainerOptions& options) {
  nlohmann::json object;
  for_each_option(options, [&](const char* name, const auto& value) { object[name] = value; });
  object["autocast"] = !options.autocast ? "none" : *options.autocast == at::kHalf ? "float16" : "bfloat16";
  return object.dump(1) + '\n';
}

TrainerOptions parse_trainer_options(const std::string& json) {
  const auto object = nlohmann::json::parse(json, nullptr, false);
  TORCH_CHECK_VALUE(object.is_object(), kWho, ": expected a JSON object");
  TrainerOptions options;
  for_each_option(options, [&](const char* name, auto& value) {
    const auto found = object.find(name);
    TORCH_CHECK_VALUE(found != object.end(), kWho, ": expected a member \"", name, "\"");
    using Value = std::remove_reference_t<decltype(value)>;
    const bool fits = std::is_floating_point_v<Value> ? found->is_number()
                      : std::is_unsigned_v<Value>     ? found->is_number_unsigned()
                                                      : found->is_number_integer();
    TORCH_CHECK_VALUE(fits, kWho, ": expected \"", name, "\" to be a number of its kind, got ",
                      found->dump());
    value = found->get<Value>();
  });
  const auto autocast = object.value("autocast", nlohmann::json());
  TORCH_CHECK_VALUE(autocast == "none" || autocast == "bfloat16" || autocast == "float16", kWho,
                    ": expected \"autocast\" to be \"none\", \"bfloat16\" or \"float16\", got ",
                    autocast.dump());
  if (autocast != "none") options.autocast = autocast == "float16" ? at::kHalf : at::kBFloat16;
  return options;
}

}  // namespace attentive
