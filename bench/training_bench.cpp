// Time and peak memory of what makes training fit: the loss in chunks against the composed loss, checkpointed
// blocks against blocks that keep their activations, and a step with each technique of
// docs/guide/training_on_one_machine.md; and of the tokens of a text.
//
//   build/release/bench/training_bench loss --vocabulary 150000 --tokens 2048 --width 1024
//   build/release/bench/training_bench blocks --tokens 1024
//   build/release/bench/training_bench techniques --tokens 1024 --batch 2
//   build/release/bench/training_bench text --megabytes 256
//
// The ways alternate in rounds. Memory is the peak of a call, less the gradients that it leaves: of the bytes
// of all tensors, and of resident memory, in which the C library keeps a part of what was freed.

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <attentive/functional/linear_cross_entropy.h>
#include <attentive/models/gpt.h>
#include <attentive/models/lora.h>
#include <attentive/text/tokenizer.h>
#include <attentive/train/adamw.h>
#include <attentive/train/language_model.h>
#include <attentive/train/loss_scaler.h>
#include <attentive/train/token_file.h>

#include "common/run_main.h"
#include "support/gpt2.h"
#include "support/memory.h"
#include "support/timing.h"

using namespace attentive;

namespace {

constexpr double kMiB = 1 << 20;

struct Settings {
  int64_t vocabulary = 150000, tokens = 2048, width = 1024;
  int rounds = 5, threads = 2;
  bool bf16 = false;
};

struct StepSettings {
  int64_t tokens = 1024, batch = 1;
  double dropout = 0.0;
  bool autocast = false;
};

struct Way {
  std::string name;
  std::function<std::vector<at::Tensor>()> run;  // what it returns does not count as its memory
  std::vector<double> seconds = {};
  double tensors = 0, resident = 0;  // bytes
};

double bytes_of(const std::vector<at::Tensor>& tensors) {
  double bytes = 0;
  for (const auto& x : tensors) bytes += static_cast<double>(x.nbytes());
  return bytes;
}

// The median of the ratios within a round.
double median_ratio(const std::vector<double>& seconds, const std::vector<double>& first) {
  std::vector<double> ratios;
  for (size_t round = 0; round < seconds.size(); ++round) ratios.push_back(seconds[round] / first[round]);
  return bench::median_of(ratios);
}

void compare(const std::string& title, std::vector<Way> ways, int rounds) {
  for (auto& way : ways) {
    double results = 0;
    way.resident = bench::peak_growth([&] { results = bytes_of(way.run()); }) - results;
    way.tensors = bench::peak_tensor_growth(way.run) - results;
  }
  for (int round = 0; round < rounds; ++round) {
    for (auto& way : ways) {
      const bench::Timer timer;
      way.run();
      way.seconds.push_back(timer.seconds());
    }
  }
  fmt::print("{}\n", title);
  for (const auto& way : ways) {
    fmt::print(
        "  {:<12} {:>9.1f} ms (x {:.3f})   tensors {:>8.1f} MiB (x {:.3f})   resident {:>8.1f} MiB (x "
        "{:.3f})\n",
        way.name, 1e3 * bench::median_of(way.seconds), median_ratio(way.seconds, ways[0].seconds),
        way.tensors / kMiB, way.tensors / ways[0].tensors, way.resident / kMiB,
        way.resident / ways[0].resident);
  }
  apps::flush_output();
}

// Whole: all parameters learn. Frozen: the tables and the first six blocks do not. Adapted: adapters do.
enum class ModelKind { Whole, Frozen, Adapted };

// How a step is trained.
struct Technique {
  std::string name;
  bool chunks = true;      // the loss in chunks
  int64_t checkpoint = 0;  // blocks
  std::optional<at::ScalarType> autocast = std::nullopt;
  int64_t passes = 1;    // forward passes that share the rows of the step
  bool ignored = false;  // the first half of each row is a prompt, whose targets do not count
  ModelKind model = ModelKind::Whole;
};

// A model with its optimizer, whose moments exist after the first step.
struct Trained {
  GPT model;
  AdamW optimizer;

  explicit Trained(GPT made) : model(std::move(made)), optimizer(*model, {.learning_rate = 1e-5}) {}
  double moments() const {
    double bytes = 0;
    for (const auto& parameter : model->parameters()) {
      if (parameter.requires_grad()) bytes += 2.0 * static_cast<double>(parameter.nbytes());
    }
    return bytes;
  }
};

at::Tensor loss_of(GPT model, const at::Tensor& ids, const Technique& technique) {
  auto targets = ids.roll(-1, 1);
  if (technique.ignored) targets.narrow(1, 0, ids.size(1) / 2).fill_(-100);
  const Autocast autocast(at::kCPU, technique.autocast);
  if (technique.chunks) return model->loss(ids, targets);
  return at::cross_entropy_loss(model->forward(ids).flatten(0, 1), targets.flatten());
}

// Trains the model for a step of AdamW, and returns the gradients.
std::vector<at::Tensor> train(Trained& trained, const at::Tensor& ids, const Technique& technique) {
  auto& [model, optimizer] = trained;
  model->options.checkpoint(technique.checkpoint);
  optimizer.zero_grad();
  const bool scaled = technique.autocast == at::kHalf;
  LossScaler scaler({.mode = scaled ? LossScalingMode::Fixed : LossScalingMode::Off});
  for (const auto& rows : ids.chunk(technique.passes)) {
    scaler.scale(loss_of(model, rows, technique) / static_cast<double>(technique.passes)).backward();
  }
  optimizer.clip(1.0, scaler.factor());
  optimizer.step();
  std::vector<at::Tensor> gradients;
  for (const auto& parameter : model->parameters()) {
    if (parameter.grad().defined()) gradients.push_back(parameter.grad());
  }
  optimizer.zero_grad();
  return gradients;
}

// A step of GPT-2 (124M): the loss, in chunks, the backward pass and AdamW. The moments exist before.
void blocks(const StepSettings& step, int rounds) {
  at::manual_seed(1);
  Trained trained(bench::gpt2(step.dropout));
  const auto ids = bench::gpt2_ids(step.batch, step.tokens);
  const auto way = [&](const char* name, int64_t every) {
    const Technique technique{.name = name,
                              .checkpoint = every,
                              .autocast = step.autocast ? std::optional(at::kBFloat16) : std::nullopt};
    return Way{name, [&trained, ids, technique] { return train(trained, ids, technique); }};
  };
  const auto plain = way("none", 0);
  plain.run();
  compare(fmt::format("step of GPT-2 124M, batch {}, {} tokens, dropout {}{}", step.batch, step.tokens,
                      step.dropout, step.autocast ? ", autocast to bfloat16" : ""),
          {plain, way("every block", 1), way("every third", 3)}, rounds);
}

GPT frozen(GPT model) {
  for (const auto& table : {model->tok_emb->weight, model->pos_emb->weight}) table.set_requires_grad(false);
  for (size_t block = 0; block < 6; ++block) {
    for (const auto& parameter : model->trf_blocks->ptr(block)->parameters())
      parameter.set_requires_grad(false);
  }
  return model;
}

// The step under each technique of docs/guide/training_on_one_machine.md: its time, and the bytes of tensors
// beyond the parameters, which are those of the step and the moments.
void techniques(const StepSettings& step, int rounds) {
  at::manual_seed(1);
  auto adapted = bench::gpt2(step.dropout);
  const auto lora = Lora({.rank = 8, .alpha = 16.0}).attach(adapted);
  std::map<ModelKind, Trained> models;
  models.emplace(ModelKind::Whole, bench::gpt2(step.dropout));
  models.emplace(ModelKind::Frozen, frozen(bench::gpt2(step.dropout)));
  models.emplace(ModelKind::Adapted, adapted);
  const auto ids = bench::gpt2_ids(step.batch, step.tokens);
  const std::vector<Technique> all{{.name = "none", .chunks = false},
                                   {.name = "loss in chunks"},
                                   {.name = "and ignored tokens", .ignored = true},
                                   {.name = "and checkpointed blocks", .checkpoint = 1},
                                   {.name = "and bfloat16 products", .autocast = at::kBFloat16},
                                   {.name = "and float16 products", .autocast = at::kHalf},
                                   {.name = "and one pass a row", .passes = step.batch},
                                   {.name = "and frozen parameters", .model = ModelKind::Frozen},
                                   {.name = "and LoRA", .model = ModelKind::Adapted},
                                   {.name = "all but float16",
                                    .checkpoint = 1,
                                    .autocast = at::kBFloat16,
                                    .passes = step.batch,
                                    .ignored = true,
                                    .model = ModelKind::Adapted}};
  std::vector<double> bytes;
  std::vector<std::vector<double>> seconds(all.size());
  for (const auto& technique : all) {
    auto& trained = models.at(technique.model);
    train(trained, ids, technique);
    bytes.push_back(bench::peak_tensor_growth([&] { train(trained, ids, technique); }) + trained.moments());
  }
  for (int round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < all.size(); ++i) {
      const bench::Timer timer;
      train(models.at(all[i].model), ids, all[i]);
      seconds[i].push_back(timer.seconds());
    }
  }
  fmt::print("step of GPT-2 124M, batch {}, {} tokens\n", step.batch, step.tokens);
  for (size_t i = 0; i < all.size(); ++i) {
    fmt::print("  {:<24} {:>7.2f} s (x {:.2f})   {:>6.0f} MiB (x {:.2f})\n", all[i].name,
               bench::median_of(seconds[i]), median_ratio(seconds[i], seconds[0]), bytes[i] / kMiB,
               bytes[i] / bytes[0]);
  }
  apps::flush_output();
}

// A text of words from a list, of at least the given size.
void write_text(const std::filesystem::path& path, int64_t megabytes) {
  const std::string line = "It is the text of a benchmark, and it repeats itself; its words are not many.\n";
  std::ofstream file(path, std::ios::binary);
  for (int64_t bytes = 0; bytes < megabytes << 20; bytes += static_cast<int64_t>(line.size())) file << line;
}

// The resident memory and time of a text's tokens: in memory, written to a file, and mapped.
void text(int64_t megabytes) {
  const auto folder = std::filesystem::temp_directory_path();
  const auto text = folder / "training_bench.txt", tokens = folder / "training_bench.tokens";
  write_text(text, megabytes);
  const auto tokenizer = CharTokenizer::train(MappedText(text).view().substr(0, 1000));
  const auto show = [](const char* name, const std::function<int64_t()>& work) {
    double seconds = 0;
    int64_t count = 0;
    const double bytes = bench::peak_growth([&] {
      const bench::Timer timer;
      count = work();
      seconds = timer.seconds();
    });
    fmt::print("  {:<24} {:>7.2f} s   {:>7.0f} MiB   {} tokens\n", name, seconds, bytes / kMiB, count);
  };
  fmt::print("tokens of a text of {} MiB; memory: resident\n", megabytes);
  show("in memory", [&] { return tokenize(MappedText(text).view(), tokenizer).training.numel(); });
  show("written to a file", [&] {
    write_token_file(tokens, text, tokenizer);
    return int64_t{0};
  });
  show("mapped", [&] { return map_token_file(tokens).training.numel(); });
  show("mapped, all read", [&] { return map_token_file(tokens).training.count_nonzero().item<int64_t>(); });
  std::filesystem::remove(text);
  std::filesystem::remove(tokens);
  apps::flush_output();
}

void loss(const Settings& settings) {
  const auto type = settings.bf16 ? at::kBFloat16 : at::kFloat;
  at::manual_seed(1);
  const auto hidden = at::randn({settings.tokens, settings.width}).to(type).requires_grad_(true);
  const auto weight =
      at::randn({settings.vocabulary, settings.width}).mul_(0.05).to(type).requires_grad_(true);
  const auto targets = at::randint(settings.vocabulary, {settings.tokens}, at::kLong);
  const auto gradients = [=](const at::Tensor& value) {
    return torch::autograd::grad({value}, {hidden, weight});
  };
  compare(
      fmt::format("loss and its gradients, {} tokens, vocabulary {}, width {}, {}", settings.tokens,
                  settings.vocabulary, settings.width, c10::toString(type)),
      {{"composed", [=] { return gradients(at::cross_entropy_loss(at::linear(hidden, weight), targets)); }},
       {"in chunks", [=] { return gradients(linear_cross_entropy(hidden, weight, targets)); }}},
      settings.rounds);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Time and peak memory of what makes training fit.", "training_bench");
  Settings settings;
  app.require_subcommand(1);
  app.add_option("--threads", settings.threads)->check(CLI::Range(1, 1024))->capture_default_str();
  app.add_option("--rounds", settings.rounds)->check(CLI::Range(1, 1000))->capture_default_str();
  auto* loss_command = app.add_subcommand("loss", "linear_cross_entropy against cross_entropy(linear)");
  loss_command->add_option("--vocabulary", settings.vocabulary)
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  loss_command->add_option("--tokens", settings.tokens)->check(CLI::PositiveNumber)->capture_default_str();
  loss_command->add_option("--width", settings.width)->check(CLI::PositiveNumber)->capture_default_str();
  loss_command->add_flag("--bf16", settings.bf16);
  StepSettings step;
  auto* blocks_command = app.add_subcommand("blocks", "checkpointed blocks against none");
  auto* techniques_command = app.add_subcommand("techniques", "a step with each technique, and with all");
  for (auto* command : {blocks_command, techniques_command}) {
    command->add_option("--tokens", step.tokens)->check(CLI::Range(1, 1024))->capture_default_str();
    command->add_option("--batch", step.batch)->check(CLI::PositiveNumber)->capture_default_str();
    command->add_option("--dropout", step.dropout)->check(CLI::Range(0.0, 1.0))->capture_default_str();
  }
  blocks_command->add_flag("--autocast", step.autocast, "to bfloat16");
  int64_t megabytes = 256;
  auto* text_command = app.add_subcommand("text", "tokens in memory and in a mapped file");
  text_command->add_option("--megabytes", megabytes)->check(CLI::Range(1, 100000))->capture_default_str();
  return apps::run_main(app, argc, argv, [&] {
    at::set_num_threads(settings.threads);
    if (loss_command->parsed()) loss(settings);
    if (blocks_command->parsed()) blocks(step, settings.rounds);
    if (techniques_command->parsed()) techniques(step, settings.rounds);
    if (text_command->parsed()) text(megabytes);
    return 0;
  });
}
