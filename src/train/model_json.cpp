// Converts the options of a language model to "model.json" and back.

#include <attentive/modules/module.h>
#include <attentive/train/language_model.h>

#include "files/option_json.h"

namespace attentive {
namespace {

// Members that earlier versions do not know. They are written only if they differ from the defaults, and have
// the defaults if they are absent.
constexpr const char* kLater[] = {"rotary_low_freq_factor",
                                  "rotary_high_freq_factor",
                                  "rotary_original_context",
                                  "hidden_dim",
                                  "activation",
                                  "eps",
                                  "checkpoint"};
constexpr const char* kLaterOfLlama[] = {"checkpoint"};

template <class Options, size_t kCount>
nlohmann::json without_later_defaults(const Options& options, const Options& defaults,
                                      const char* const (&later)[kCount]) {
  auto object = option_object(options);
  const auto unchanged = option_object(defaults);
  for (const auto* name : later) {
    if (object[name] == unchanged[name]) object.erase(name);
  }
  return object;
}

bool is_llama(const nlohmann::json& object) {
  const auto model = object.find("model");
  return model != object.end() && *model == LlamaImpl::kName;
}

}  // namespace

std::string to_json(const GPTOptions& options) {
  auto object = without_later_defaults(options, GPTOptions(1, 1, 1, 1, 1), kLater);
  object.erase("rotary_head_dim");  // set by the model
  return object.dump(1) + '\n';
}

GPTOptions parse_gpt_options(const std::string& json) {
  auto object = parse_option_object("GPTOptions", json);
  GPTOptions options(1, 1, 1, 1, 1);
  const auto defaults = option_object(options);
  for (const auto* name : kLater) object.emplace(name, defaults[name]);
  object["rotary_head_dim"] = options.rotary().head_dim();
  each_option(options, OptionReader("GPTOptions", object));
  return options;
}

std::string to_json(const LlamaOptions& options) {
  auto object = without_later_defaults(options, LlamaOptions(1, 1, 1, 1), kLaterOfLlama);
  object["model"] = LlamaImpl::kName;
  return object.dump(1) + '\n';
}

LlamaOptions parse_llama_options(const std::string& json) {
  constexpr const char* caller = "LlamaOptions";
  auto object = parse_option_object(caller, json);
  TORCH_CHECK_VALUE(is_llama(object), caller, ": expected a member \"model\" with the value \"",
                    LlamaImpl::kName, '"');
  LlamaOptions options(1, 1, 1, 1);
  const auto defaults = option_object(options);
  for (const auto* name : kLaterOfLlama) object.emplace(name, defaults[name]);
  each_option(options, OptionReader(caller, object));
  return options;
}

AnyLanguageModel parse_language_model(const std::string& json) {
  const auto object = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  const NoFirstWeights guard;
  if (object.is_object() && is_llama(object)) return Llama(parse_llama_options(json));
  return GPT(parse_gpt_options(json));
}

}  // namespace attentive
