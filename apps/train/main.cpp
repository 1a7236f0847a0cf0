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
#include <attentive/train/progress.h>
#include <attentive/train/trainer.h>

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

constexpr int kMostLossScale = 1 << 24;

CLI::Validator loss_scale() {
  return CLI::Validator(
      [](std::string& text) {
        const bool fits = text == "dynamic" || text == "off" ||
                          apps::number(0, kMostLossScale, apps::Ends::WithoutLeast)(text).empty();
        return fits ? std::string()
                    : fmt::format("expected dynamic, off or a number above 0, at most {}, got {}",
                                  kMostLossScale, text);
      },
      "dynamic, off or a number");
}

void declare(CLI::App& app, Settings& s) {
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
  app.add_option("--preset", s.preset, "Start from [shakespeare-small]:" + names)
      ->check(CLI::IsMember(presets()));
  apps::add_device(app, s.device, "Where to compute; cuda under torchrun: each process on a GPU of its own");
  apps::add_threads(app, s.threads);
  app.add_option("--timeout", s.timeout, "Seconds that one process waits for another before the run ends")
      ->check(apps::whole_number(1, int64_t{24} * 3600))
      ->capture_default_str();
  app.add_option("--seed", s.seed, "Seed of initial weights, batches and dropout [1337]")
      ->check(apps::seed_number());
  app.add_option("--tokenizer", s.tokenizer, "char, or bpe: byte pairs learned from the text [char]")
      ->check(CLI::IsMember({"char", "bpe"}));
  app.add_option("--vocab", s.vocab, "Tokens of bpe, at least 256 [512]")
      ->check(apps::whole_number(256, 1'000'000));

  app.add_option("--layers", s.layers)->check(apps::whole_number(1, apps::kMostLayers))->group("Model");
  app.add_option("--heads", s.heads)->check(apps::whole_number(1, apps::kMostHeads))->group("Model");
  app.add_option("--kv-heads", s.kv_heads, "Grouped queries; 0: --heads")
      ->check(apps::whole_number(0, apps::kMostHeads))
      ->group("Model");
  app.add_option("--width", s.width, "Features of a token")
      ->check(apps::whole_number(1, apps::kMostWidth))
      ->group("Model");
  app.add_option("--block", s.block, "Tokens of context")
      ->check(apps::whole_number(1, apps::kMostContext))
      ->group("Model");
  app.add_option("--window", s.window, "Tokens that a token sees; 0: all before it")
      ->check(apps::whole_number(0, apps::kMostContext))
      ->group("Model");
  app.add_option("--dropout", s.dropout)->check(apps::number(0, 1))->group("Model");
  app.add_option("--positions", s.positions)->check(CLI::IsMember({"learned", "rotary"}))->group("Model");
  app.add_option("--bias", s.bias, "Biases in projections and norms, true or false")
      ->check(apps::true_or_false())
      ->group("Model");
  app.add_option("--tied", s.tied, "Whether the head shares the embedding's weight")
      ->check(apps::true_or_false())
      ->group("Model");

  app.add_option("--steps", s.steps, "Updates in all")
      ->check(apps::whole_number(1, apps::kMostSteps))
      ->group("Training");
  app.add_option("--batch", s.batch, "Rows a forward pass, of all processes together")
      ->check(apps::whole_number(1, apps::kMostRows))
      ->group("Training");
  app.add_option("--accumulate", s.accumulate, "Forward passes an update, of all processes together")
      ->check(apps::whole_number(1, apps::kMostRows))
      ->group("Training");
  app.add_option("--lr", s.lr, "Highest learning rate")
      ->check(apps::number(0, apps::kHighestRate))
      ->group("Training");
  app.add_option("--min-lr", s.min_lr, "Last learning rate")
      ->check(apps::number(0, apps::kHighestRate))
      ->group("Training");
  app.add_option("--warmup", s.warmup, "Updates until --lr is reached")
      ->check(apps::whole_number(0, apps::kMostSteps))
      ->group("Training");
  app.add_option("--decay-steps", s.decay_steps, "Update at which --min-lr is reached; 0: --steps")
      ->check(apps::whole_number(0, apps::kMostSteps))
      ->group("Training");
  app.add_option("--beta1", s.beta1)->check(apps::number(0, 1, apps::Ends::WithoutMost))->group("Training");
  app.add_option("--beta2", s.beta2)->check(apps::number(0, 1, apps::Ends::WithoutMost))->group("Training");
  app.add_option("--weight-decay", s.weight_decay, "Weight decay of matrices")
      ->check(apps::number(0, apps::kHighestRate))
      ->group("Training");
  app.add_option("--clip", s.clip, "Largest norm of the gradients; 0: no limit")
      ->check(apps::number(0, 1e30))
      ->group("Training");
  app.add_option("--autocast", s.autocast, "Precision of the forward pass")
      ->check(CLI::IsMember({"none", "bfloat16", "float16"}))
      ->group("Training");
  app.add_option(
         "--loss-scale", s.loss_scale,
         "dynamic, off, or a fixed factor of the loss [dynamic with --autocast float16, otherwise off]")
      ->check(loss_scale())
      ->group("Training");
  // A function, because a flag bound to an optional would be set to false if it is absent.
  app.add_flag_function(
         "--shard-optimizer", [&](int64_t count) { s.shard_optimizer = count > 0; },
         "Each process keeps the moments of its share of the parameters alone")
      ->group("Training");
  auto* rank = app.add_option("--lora-rank", s.lora_rank,
                              "Train only adapters of this rank (LoRA) beside the weights of --init-from")
                   ->check(apps::whole_number(1, apps::kMostWidth))
                   ->group("Training");
  app.add_option("--lora-alpha", s.lora_alpha, "Adapters count alpha / rank times [8]")
      ->check(apps::number(0, 1e30, apps::Ends::WithoutLeast))
      ->needs(rank)
      ->group("Training");
  app.add_option("--lora-dropout", s.lora_dropout, "Dropout of the adapters' input [0]")
      ->check(apps::number(0, 1))
      ->needs(rank)
      ->group("Training");
  app.add_option("--lora-targets", s.lora_targets,
                 "Layers to adapt, as Python names them: q_proj,v_proj, or all-linear [those of peft]")
      ->delimiter(',')
      ->needs(rank)
      ->group("Training");
  app.add_flag("--checkpoint-blocks", s.checkpoint_blocks,
               "Keep only each block's input for the backward pass, which computes the block again")
      ->group("Training");

  app.add_option("--evaluate-every", s.evaluate_every, "Updates; 0: at the end")
      ->check(apps::whole_number(0, apps::kMostSteps))
      ->group("Output");
  app.add_option("--save-every", s.save_every, "Updates; 0: at the end")
      ->check(apps::whole_number(0, apps::kMostSteps))
      ->group("Output");
  app.add_option("--keep", s.keep, "Checkpoints that stay; 0: all")
      ->check(apps::whole_number(0, apps::kMostSteps))
      ->group("Output");
  app.add_option("--log-every", s.log_every, "Updates between two rows of the log")
      ->check(apps::whole_number(1, apps::kMostSteps))
      ->group("Output");
  auto* every = app.add_option("--sample-every", s.sample_every,
                               "Updates between two texts in samples.txt and on the screen; 0: none")
                    ->check(apps::whole_number(0, apps::kMostSteps))
                    ->group("Output");
  app.add_option("--sample-prompt", s.sample_prompt,
                 "The text that samples continue [the first word of --text]")
      ->needs(every)
      ->group("Output");
  app.add_option("--sample-tokens", s.sample_tokens, "New tokens of each [100]")
      ->check(apps::whole_number(1, apps::kMostTokens))
      ->needs(every)
      ->group("Output");
  app.add_option("--log-format", s.log_format)
      ->check(CLI::IsMember({"csv", "jsonl"}))
      ->capture_default_str()
      ->group("Output");
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
