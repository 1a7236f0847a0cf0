// Time and peak memory of what makes training fit: the loss in chunks against the composed loss.
//
//   build/release/bench/training_bench loss --vocabulary 150000 --tokens 2048 --width 1024
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
  return apps::run_main(app, argc, argv, [&] {
    at::set_num_threads(settings.threads);
    if (loss_command->parsed()) loss(settings);
    return 0;
  });
}
