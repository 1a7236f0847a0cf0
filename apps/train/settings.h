#pragma once

#include <map>
#include <optional>
#include <string>

#include <attentive/models/any_language_model.h>
#include <attentive/train/trainer.h>

// What the command line of attentive-train says. A setting that was not given comes from the preset, or from
// the checkpoint of a run that goes on.
struct Settings {
  std::string text;
  std::string out = "run";
  bool resume = false;
  std::string init_from;  // empty: train from nothing
  std::optional<std::string> preset;
  std::string device = "auto";
  std::optional<std::string> tokenizer;
  std::optional<int64_t> vocab;
  std::optional<int64_t> layers, heads, kv_heads, width, block, window;
  std::optional<double> dropout;
  std::optional<std::string> positions;
  std::optional<bool> bias, tied;
  std::optional<int64_t> steps, batch, accumulate, warmup, decay_steps;
  std::optional<double> lr, min_lr, beta1, beta2, weight_decay, clip;
  std::optional<uint64_t> seed;
  std::optional<std::string> autocast;
  std::optional<int64_t> evaluate_every, save_every, keep, log_every;
  std::optional<bool> shard_optimizer;
  int64_t sample_every = 0;
  std::optional<std::string> sample_prompt;
  int64_t sample_tokens = 100;
  std::string log_format = "csv";
  int threads = 0;
  int64_t timeout = 60;  // seconds, of a group
};

// What a run from nothing consists of, settled.
struct Plan {
  attentive::GPTOptions model{1, 1, 1, 1, 1};
  attentive::TrainerOptions trainer;
  std::string tokenizer = "char";
  int64_t vocab = 512;
};

// The names of the presets, for the help text.
std::map<std::string, std::string> presets();

// The preset with what was given on top. Throws c10::ValueError for a name that is not known.
Plan plan_of(const Settings& settings);

// How a model that is there already learns on: the preset finetune with what was given on top. Throws
// c10::ValueError for another preset, and for rows that are longer than the model's context.
attentive::TrainerOptions finetuning(const attentive::AnyLanguageModel& model, const Settings& settings);

// The options of a checkpoint with what was given on top.
attentive::TrainerOptions resumed(attentive::TrainerOptions options, const Settings& settings);

// Throws c10::ValueError if a setting of the model was given and differs from what `source`, as in "the
// checkpoint", has.
void check_same_model(const attentive::AnyLanguageModel& model, const Settings& settings,
                      const std::string& source);
