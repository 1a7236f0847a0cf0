// Time and peak memory of what makes training fit: the loss in chunks against the composed loss, and
// checkpointed blocks against blocks that keep their activations.
//
//   build/release/bench/training_bench loss --vocabulary 150000 --tokens 2048 --width 1024
//   build/release/bench/training_bench blocks --tokens 1024
//
// The ways alternate in rounds. Memory is the largest growth of resident memory during a call, less the
// gradients that it leaves.

#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <attentive/functional/linear_cross_entropy.h>
#include <attentive/models/gpt.h>
#include <attentive/train/adamw.h>
#include <attentive/train/autocast.h>

#include "common/run_main.h"
#include "support/memory.h"
#include "support/timer.h"

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
  double bytes = 0;
};

double bytes_of(const std::vector<at::Tensor>& tensors) {
  double bytes = 0;
  for (const auto& x : tensors) bytes += static_cast<double>(x.nbytes());
  return bytes;
}

double median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  return x[x.size() / 2];
}

void compare(const std::string& title, std::vector<Way> ways, int rounds) {
  for (auto& way : ways) {
    double results = 0;
    way.bytes = bench::peak_growth([&] { results = bytes_of(way.run()); }) - results;
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
    std::vector<double> ratios;
    for (size_t i = 0; i < way.seconds.size(); ++i) ratios.push_back(way.seconds[i] / ways[0].seconds[i]);
    fmt::print("  {:<12} {:>9.1f} ms  {:>8.1f} MiB   time x {:.3f}   memory x {:.3f}\n", way.name,
               1e3 * median(way.seconds), way.bytes / kMiB, median(ratios), way.bytes / ways[0].bytes);
  }
  apps::flush_output();
}

// A step of GPT-2 (124M): the loss, in chunks, the backward pass and AdamW. The moments exist before.
void blocks(const StepSettings& step, int rounds) {
  at::manual_seed(1);
  GPT model(GPTOptions(50257, 1024, 768, 12, 12)
                .qkv_bias(true)
                .tied(true)
                .init(GPTInit::Gpt2)
                .dropout(step.dropout));
  AdamW optimizer(*model, {.learning_rate = 1e-5});
  const auto ids = at::randint(50257, {step.batch, step.tokens}, at::kLong), targets = ids.roll(-1, 1);
  const auto run = [&](int64_t every) {
    model->options.checkpoint(every);
    optimizer.zero_grad();
    at::Tensor value;
    {
      const Autocast autocast(at::kCPU, step.autocast ? std::optional(at::kBFloat16) : std::nullopt);
      value = model->loss(ids, targets);
    }
    value.backward();
    optimizer.step();
    std::vector<at::Tensor> gradients;
    for (const auto& parameter : model->parameters()) gradients.push_back(parameter.grad());
    optimizer.zero_grad();
    return gradients;
  };
  run(0);
  compare(fmt::format("step of GPT-2 124M, batch {}, {} tokens, dropout {}{}", step.batch, step.tokens,
                      step.dropout, step.autocast ? ", autocast to bfloat16" : ""),
          {{"none", [&] { return run(0); }},
           {"every block", [&] { return run(1); }},
           {"every third", [&] { return run(3); }}},
          rounds);
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
  blocks_command->add_option("--tokens", step.tokens)->check(CLI::Range(1, 1024))->capture_default_str();
  blocks_command->add_option("--batch", step.batch)->check(CLI::PositiveNumber)->capture_default_str();
  blocks_command->add_option("--dropout", step.dropout)->check(CLI::Range(0.0, 1.0))->capture_default_str();
  blocks_command->add_flag("--autocast", step.autocast, "to bfloat16");
  return apps::run_main(app, argc, argv, [&] {
    at::set_num_threads(settings.threads);
    if (loss_command->parsed()) loss(settings);
    if (blocks_command->parsed()) blocks(step, settings.rounds);
    return 0;
  });
}
