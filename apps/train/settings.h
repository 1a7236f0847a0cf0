#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <attentive/models/any_language_model.h>
#include <attentive/models/lora.h>
#include <attentive/train/trainer.h>

// The flags of a model: those that were given, or the values that a model has, where it has a single one.
struct ModelFlags {
  std::optional<int64_t> layers = {}, heads = {}, kv_heads = {}, width = {}, window = {};
  std::optional<double> dropout = {};
  std::optional<std::string> positions = {};
  std::optional<bool> bias = {}, tied = {};
};

// The command line of attentive-train. A setting that was not given comes from the preset, or from the
// checkpoint of a resumed run.
struct Settings {
  std::string text;
  std::string tokens;  // empty: in memory, or in --out if the text is long
  std::string out = "run";
  bool resume = false;
  std::string init_from;  // empty: train a new model
  std::optional<std::string> preset;
  std::string device = "auto";
  std::optional<std::string> tokenizer;
  std::optional<int64_t> vocab;
  ModelFlags model;
  std::optional<int64_t> block;
  std::optional<int64_t> lora_rank;  // not set: train all weights
  std::optional<double> lora_alpha, lora_dropout;
  std::vector<std::string> lora_targets;                                  // empty: those of peft
  std::vector<std::function<void(attentive::TrainerOptions&)>> training;  // each sets what a flag has given
  bool checkpoint_blocks = false;
  int64_t sample_every = 0;
  std::optional<std::string> sample_prompt;
  int64_t sample_tokens = 100;
  std::string log_format = "csv";
  int threads = 0;
  int64_t timeout = 60;  // in seconds, for calls of the group
};

// The complete settings of a new run.
struct Plan {
  attentive::GPTOptions model{1, 1, 1, 1, 1};
  attentive::TrainerOptions trainer;
  std::string tokenizer = "char";
  int64_t vocab = 512;
};

// Sets the precision of --autocast, and dynamic, off or a number of --loss-scale.
void set_autocast(attentive::TrainerOptions& trainer, const std::string& text);
void set_loss_scale(attentive::TrainerOptions& trainer, const std::string& text);

// The names and descriptions of the presets, for the help text.
std::map<std::string, std::string> presets();

// The preset, overridden by the given settings. Throws c10::ValueError for an unknown preset.
Plan plan_of(const Settings& settings);

// The training options for an existing model: the preset finetune, overridden by the given settings. Throws
// c10::ValueError for another preset, and for rows longer than the model's context.
attentive::TrainerOptions finetuning(const attentive::AnyLanguageModel& model, const Settings& settings);

// The adapters of --lora-rank.
attentive::LoraOptions adapters_of(const Settings& settings);

// The options of a checkpoint, overridden by the given settings.
attentive::TrainerOptions resumed(attentive::TrainerOptions options, const Settings& settings);

// Throws c10::ValueError if a given setting of the model differs from the model of `source`, for instance
// "the checkpoint".
void check_same_model(const attentive::AnyLanguageModel& model, const Settings& settings,
                      const std::string& source);
