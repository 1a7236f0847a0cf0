// attentive-train: trains a small GPT on a text, or fine-tunes a model from Python, with checkpoints that
// survive a crash at any moment.

#include <chrono>
#include <cstdio>
#include <memory>

#include <ATen/Parallel.h>
#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <attentive/models/model_folder.h>
#include <attentive/train/checkpoint.h>
#include <attentive/train/language_model.h>
#include <attentive/train/trainer.h>
#include <attentive/train/training_log.h>

#include "common/device.h"
#include "common/flags.h"
#include "common/run_main.h"
#include "hints.h"
#include "join_group.h"
#include "samples.h"
#include "settings.h"
#include "start.h"
#include "stop_signals.h"
#include "text.h"
#include "tokens.h"

namespace {

using namespace attentive;

CLI::Validator loss_scale() {
  static constexpr int kMost = 1 << 24;
  const auto check = [](std::string& text) {
    const bool fits =
        text == "dynamic" || text == "off" || apps::number(0, kMost, apps::Ends::WithoutLeast)(text).empty();
    return fits ? ""
                : fmt::format("expected dynamic, off or a number above 0, at most {}, got {}", kMost, text);
  };
  return {check, "dynamic, off or a number"};
}

// Adds flags of one group of the help text. A target is a variable, or what a flag does to TrainerOptions: a
// member that it sets, or a function that reads its text.
struct Flags {
  CLI::App& app;
  Settings& settings;
  const char* group;

  template <class Value>
  CLI::Option* operator()(const char* flag, Value& target, const CLI::Validator& check,
                          const char* text = "") const {
    return app.add_option(flag, target, text)->check(check)->group(group);
  }
  template <class Value>
  CLI::Option* operator()(const char* flag, Value TrainerOptions::*member, const CLI::Validator& check,
                          const char* text = "") const {
    return add<Value>(
        flag, [member](auto& options, const Value& value) { options.*member = value; }, check, text);
  }
  CLI::Option* operator()(const char* flag, void (*read)(TrainerOptions&, const std::string&),
                          const CLI::Validator& check, const char* text = "") const {
    return add<std::string>(flag, read, check, text);
  }

 private:
  template <class Value, class Set>
  CLI::Option* add(const char* flag, Set set, const CLI::Validator& check, const char* text) const {
    const auto given = [&sets = settings.training, set](const Value& value) {
      sets.emplace_back([set, value](TrainerOptions& options) { set(options, value); });
    };
    return app.add_option_function<Value>(flag, given, text)->check(check)->group(group);
  }
};

void declare(CLI::App& app, Settings& s) {
  using apps::number, apps::whole_number, apps::Ends;
  using Options = TrainerOptions;
  const auto from_0 = whole_number(0, apps::kMostSteps), from_1 = whole_number(1, apps::kMostSteps),
             rows = whole_number(1, apps::kMostRows), rate = number(0, apps::kHighestRate),
             share = number(0, 1), below_1 = number(0, 1, Ends::WithoutMost);
  std::string names;
  for (const auto& [name, what] : presets()) names += fmt::format("\n{:20}{}", name, what);
  app.set_config("--config", "", "Read settings from this INI or TOML file; flags win over it");
  app.allow_config_extras(CLI::config_extras_mode::error);
  app.add_option("--text", s.text, "Text file to learn: any bytes; the last 10 % are for validation");
  app.add_option("--tokens", s.tokens,
                 "File for the tokens of the text, which all processes share: written if it is not there, "
                 "otherwise read [in memory; tokens.bin in --out if the text has more than 16 MiB and all "
                 "processes are on one machine]");
  app.add_option("--out", s.out, "Folder for checkpoints, log and loss picture")->capture_default_str();
  app.add_flag("--resume", s.resume, "Go on from the latest checkpoint in --out");
  app.add_option("--init-from", s.init_from,
                 "Fine-tune the model of a folder, with its tokenizer: one that Python wrote (" +
                     known_families({GPTImpl::kName, LlamaImpl::kName}) + "), or a run of this program");
  const Flags top{app, s, app.get_option("--config")->get_group().c_str()};
  top("--preset", s.preset, CLI::IsMember(presets()), ("Start from [shakespeare-small]:" + names).c_str());
  apps::add_device(app, s.device, "Where to compute; cuda under torchrun: each process on a GPU of its own");
  apps::add_threads(app, s.threads);
  top("--timeout", s.timeout, whole_number(1, int64_t{24} * 3600),
      "Seconds that one process waits for another before the run ends")
      ->capture_default_str();
  top("--seed", &Options::seed, apps::seed_number(), "Seed of initial weights, batches and dropout [1337]");
  top("--tokenizer", s.tokenizer, CLI::IsMember({"char", "bpe"}),
      "char, or bpe: byte pairs learned from the text [char]");
  top("--vocab", s.vocab, whole_number(256, 1'000'000), "Tokens of bpe, at least 256 [512]");

  const Flags model{app, s, "Model"};
  model("--layers", s.model.layers, whole_number(1, apps::kMostLayers));
  model("--heads", s.model.heads, whole_number(1, apps::kMostHeads));
  model("--kv-heads", s.model.kv_heads, whole_number(0, apps::kMostHeads), "Grouped queries; 0: --heads");
  model("--width", s.model.width, whole_number(1, apps::kMostWidth), "Features of a token");
  model("--block", s.block, whole_number(1, apps::kMostContext), "Tokens of context");
  model("--window", s.model.window, whole_number(0, apps::kMostContext),
        "Tokens that a token sees; 0: all before it");
  model("--dropout", s.model.dropout, share);
  model("--positions", s.model.positions, CLI::IsMember({"learned", "rotary"}));
  model("--bias", s.model.bias, apps::true_or_false(), "Biases in projections and norms, true or false");
  model("--tied", s.model.tied, apps::true_or_false(), "Whether the head shares the embedding's weight");

  const Flags training{app, s, "Training"};
  training("--steps", &Options::steps, from_1, "Updates in all");
  training("--batch", &Options::batch, rows, "Rows a forward pass, of all processes together");
  training("--accumulate", &Options::accumulate, rows, "Forward passes an update, of all processes together");
  training("--lr", &Options::learning_rate, rate, "Highest learning rate");
  training("--min-lr", &Options::min_learning_rate, rate, "Last learning rate");
  training("--warmup", &Options::warmup, from_0, "Updates until --lr is reached");
  training("--decay-steps", &Options::decay_steps, from_0, "Update at which --min-lr is reached; 0: --steps");
  training("--beta1", &Options::beta1, below_1);
  training("--beta2", &Options::beta2, below_1);
  training("--weight-decay", &Options::weight_decay, rate, "Weight decay of matrices");
  training("--clip", &Options::clip, number(0, 1e30), "Largest norm of the gradients; 0: no limit");
  training("--autocast", set_autocast, CLI::IsMember({"none", "bfloat16", "float16"}),
           "Precision of the forward pass");
  training("--loss-scale", set_loss_scale, loss_scale(),
           "dynamic, off, or a fixed factor of the loss [dynamic with --autocast float16, otherwise off]");
  const auto shard = [&s](int64_t count) {
    s.training.emplace_back([count](Options& options) { options.shard_optimizer = count > 0; });
  };
  app.add_flag_function("--shard-optimizer", shard,
                        "Each process keeps the moments of its share of the parameters alone")
      ->group(training.group);
  auto* rank = training("--lora-rank", s.lora_rank, whole_number(1, apps::kMostWidth),
                        "Train only adapters of this rank (LoRA) beside the weights of --init-from");
  training("--lora-alpha", s.lora_alpha, number(0, 1e30, Ends::WithoutLeast),
           "Adapters count alpha / rank times [8]")
      ->needs(rank);
  training("--lora-dropout", s.lora_dropout, share, "Dropout of the adapters' input [0]")->needs(rank);
  training("--lora-targets", s.lora_targets, {},
           "Layers to adapt, as Python names them: q_proj,v_proj, or all-linear [those of peft]")
      ->delimiter(',')
      ->needs(rank);
  app.add_flag("--checkpoint-blocks", s.checkpoint_blocks,
               "Keep only each block's input for the backward pass, which computes the block again")
      ->group(training.group);

  const Flags output{app, s, "Output"};
  output("--evaluate-every", &Options::evaluate_every, from_0, "Updates; 0: at the end");
  output("--save-every", &Options::save_every, from_0, "Updates; 0: at the end");
  output("--keep", &Options::keep, from_0, "Checkpoints that stay; 0: all");
  output("--log-every", &Options::log_every, from_1, "Updates between two rows of the log");
  auto* every = output("--sample-every", s.sample_every, from_0,
                       "Updates between two texts in samples.txt and on the screen; 0: none");
  output("--sample-prompt", s.sample_prompt, {}, "The text that samples continue [the first word of --text]")
      ->needs(every);
  output("--sample-tokens", s.sample_tokens, whole_number(1, apps::kMostTokens), "New tokens of each [100]")
      ->needs(every);
  output("--log-format", s.log_format, CLI::IsMember({"csv", "jsonl"}))->capture_default_str();
}

int64_t count_parameters(const torch::nn::Module& model) {
  int64_t count = 0;
  for (const auto& parameter : model.parameters()) count += parameter.numel();
  return count;
}

// Prints the summary before the first step.
void greet(Progress& progress, const Start& start, const TokenizedText& tokens, const Trainer& trainer,
           int64_t processes, const std::vector<std::string>& remarks) {
  const auto& language = start.language;
  progress.note(
      fmt::format("{} parameters, {} tokens to learn, {} to validate, vocabulary {}, {}, {}{} threads",
                  count_parameters(language.model.module()), tokens.training.size(0),
                  tokens.validation.size(0), language.model.vocab_size(), start.trainer.device.str(),
                  processes > 1 ? fmt::format("{} processes of ", processes) : "", at::get_num_threads()));
  if (language.lora) {
    int64_t trained = 0;
    for (const auto& parameter : language.lora->parameters()) trained += parameter.numel();
    progress.note(fmt::format("{} of them in adapters of rank {}, which alone are trained", trained,
                              language.lora->options().rank));
  }
  if (start.checkpoint) progress.note(fmt::format("going on after step {}", trainer.steps_done()));
  for (const auto& remark : remarks) progress.note("note: " + remark);
}

// Prints the summary of a run that did all its steps.
void finish(Progress& progress, const std::string& program, const Settings& settings, const Start& start,
            const std::string& opening, std::optional<double> validation) {
  progress.note(validation
                    ? fmt::format("done: validation loss {:.4f} over the whole validation text", *validation)
                    : std::string("done"));
  if (start.language.lora) {
    const auto folder = adapter_folder(settings);
    start.language.lora->save(folder);
    progress.note(fmt::format("saved {}: Python's PeftModel.from_pretrained loads it", folder.string()));
  } else if (!start.language.python_files.empty()) {
    const auto folder = python_folder(settings);
    save_language_model(folder, start.language);
    progress.note(
        fmt::format("saved {}: Python's AutoModelForCausalLM.from_pretrained loads it", folder.string()));
  }
  const auto next = generate_command(program, settings.out, opening, start.language.model.context_length());
  if (!next.empty()) progress.note("try: " + next);
}

// The stream for progress messages: only rank 0 of a group prints them.
using Stream = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;
Stream silence() {
  return {std::fopen("/dev/null", "w"), &std::fclose};
}

void train(const std::string& program, Settings settings) {
  if (settings.threads > 0) at::set_num_threads(settings.threads);
  const auto kind = apps::choose_device(settings.device).type();
  TORCH_CHECK_VALUE(!settings.text.empty(), "expected --text FILE");
  const auto joined = join_group(kind, std::chrono::seconds(settings.timeout));
  const auto& group = joined.group;
  const auto rank = group ? group->rank() : 0, processes = group ? group->size() : 1;
  const bool first = rank == 0;
  CheckpointFolder folder(settings.out, rank);
  if (group) check_same_start(settings, *group);
  if (started_again() && !settings.resume) settings = after_failure(std::move(settings), group.get());
  auto text = std::make_optional<Text>(settings.text);
  auto start = start_of(settings, text->view(), first);
  start.trainer.device = joined.device;
  const auto tokens = tokens_of(settings, *text, *start.language.tokenizer, group.get());
  const auto opening = first_prompt(text->view(), 0);
  text.reset();  // frees the memory of a text, or a file that may be changed from now on
  const auto& model = start.language.model;
  model.module().to(joined.device);
  Trainer trainer(model.ptr(), language_model_loss(model), tokens.training, tokens.validation, start.trainer,
                  group);
  std::vector<std::string> remarks;
  if (start.checkpoint) remarks = trainer.restore(*start.checkpoint);
  if (trainer.options().autocast == at::kHalf &&
      trainer.options().loss_scaling.mode == LossScalingMode::Off) {
    remarks.emplace_back(
        "float16 without loss scaling: small gradients become 0 on their way back; a new run has "
        "--loss-scale dynamic");
  }
  if (trainer.steps_done() >= trainer.options().steps) {
    remarks.push_back(fmt::format("nothing is left to do of {} updates", trainer.options().steps));
  }

  Trainer::RunOptions run;
  run.documents = language_model_documents(start.language);
  run.log = "log." + settings.log_format;
  run.title = std::filesystem::path(settings.text).filename().string();
  std::optional<Samples> samples;
  if (first && settings.sample_every > 0) samples.emplace(settings, start, opening, trainer.steps_done());

  install_stop_signals(first
                           ? fmt::format("stopping after this step, then saving to {}; Ctrl-C again ends at "
                                         "once, without saving",
                                         settings.out)
                           : std::string());
  const auto nowhere = silence();
  Progress progress(first ? stderr : nowhere.get(), trainer.options().steps, trainer.steps_done());
  greet(progress, start, tokens, trainer, processes, remarks);
  std::optional<double> validation;
  run.on_step = [&](const LogRow& row) {
    if (row.validation_loss) validation = row.validation_loss;
    progress.show(row);
    if (samples) samples->after(row.step, progress);
  };
  run.on_note = [&](const std::string& note) { progress.note(note); };
  run.stop = stop_requested;
  const bool done = trainer.run(folder, run);
  if (!first) return;
  if (done) {
    finish(progress, program, settings, start, opening, validation);
  } else {
    progress.note(fmt::format("stopped after step {}; go on{} with: {}", trainer.steps_done(),
                              processes > 1 ? ", in any number of processes," : "",
                              resume_command(program, settings)));
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Trains a small GPT on a text, or fine-tunes a model that Python trained. Ctrl-C saves and ends, a "
      "second one ends without saving;\n"
      "--resume goes on, bit for bit. Several processes share each update: torchrun --nproc-per-node 2 "
      "--no-python attentive-train ...",
      "attentive-train");
  Settings settings;
  declare(app, settings);
  return apps::run_main(app, argc, argv, [&] {
    try {
      train(argv[0], settings);
    } catch (const std::exception& error) {
      report_to_group(error);
      throw;
    }
    return 0;
  });
}
