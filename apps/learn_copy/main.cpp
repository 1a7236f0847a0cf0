// attentive-learn-copy: trains one attention layer on a task that needs attention, and shows where it looks.

#include <cstdint>
#include <cstdio>
#include <string>

#include <ATen/Context.h>
#include <ATen/ops/one_hot.h>
#include <ATen/ops/randint.h>
#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>

#include <attentive/modules/multi_head_attention.h>

#include "common/flags.h"
#include "common/run_main.h"

namespace {

constexpr int64_t kTokens = 8;
constexpr int64_t kWords = 8;  // shown as the letters a to h
constexpr int64_t kWidth = 32;
constexpr int64_t kHeads = 2;

// Rows of random words, one of which is marked. The question at the end of a row: which word was marked?
struct Questions {
  at::Tensor words;   // (B, T)
  at::Tensor mark;    // (B): position of the marked word
  at::Tensor marked;  // (B, T): 1 at the mark
  at::Tensor answer;  // (B)
};

Questions ask(int64_t count, const at::Device& device) {
  Questions questions;
  questions.words = at::randint(kWords, {count, kTokens}, at::kLong).to(device);
  questions.mark = at::randint(kTokens, {count}, at::kLong).to(device);
  questions.marked = at::one_hot(questions.mark, kTokens);
  questions.answer = questions.words.gather(1, questions.mark.unsqueeze(1)).squeeze(1);
  return questions;
}

// Embeddings, one attention layer, and a linear layer that reads the last token.
struct ModelImpl : torch::nn::Module {
  ModelImpl() {
    word = register_module("word", torch::nn::Embedding(kWords, kWidth));
    marker = register_module("marker", torch::nn::Embedding(2, kWidth));
    attention = register_module(
        "attention", attentive::MultiHeadAttention(kWidth, kWidth, kTokens, /*dropout=*/0.0, kHeads));
    head = register_module("head", torch::nn::Linear(kWidth, kWords));
  }

  // Returns logits (B, kWords), and the weights of the last token (B, kHeads, T).
  std::pair<at::Tensor, at::Tensor> forward(const Questions& questions) {
    const auto x = word->forward(questions.words) + marker->forward(questions.marked);
    const auto [context, weights] = attention->forward_with_weights(x);
    return {head->forward(context.select(1, kTokens - 1)), weights.select(2, kTokens - 1)};
  }

  torch::nn::Embedding word{nullptr};
  torch::nn::Embedding marker{nullptr};
  attentive::MultiHeadAttention attention{nullptr};
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(Model);

void train(Model& model, int64_t steps, const at::Device& device) {
  torch::optim::Adam optimizer(model->parameters(), torch::optim::AdamOptions(0.002));
  fmt::print("step   loss     (guessing: ln {} = 2.0794)\n", kWords);
  for (int64_t step = 0; step <= steps; ++step) {
    const auto questions = ask(64, device);
    const auto loss = torch::nn::functional::cross_entropy(model->forward(questions).first, questions.answer);
    if (step % 25 == 0) fmt::print("{:4}   {:.4f}\n", step, loss.item<float>());
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
  }
}

double accuracy(Model& model, const at::Device& device) {
  const auto questions = ask(1000, device);
  const auto said = model->forward(questions).first.argmax(-1);
  return said.eq(questions.answer).to(at::kDouble).mean().item<double>();
}

// Prints one row of words with the mark, and below each word the weight that each head gives it.
void show(Model& model, const at::Device& device) {
  const auto question = ask(1, device);
  const auto [logits, weights] = model->forward(question);
  const auto words = question.words[0].cpu();
  const int64_t mark = question.mark.item<int64_t>();
  std::string line = "\nwords   ";
  for (int64_t t = 0; t < kTokens; ++t) {
    const char letter = static_cast<char>('a' + words[t].item<int64_t>());
    line += t == mark ? fmt::format("  [{}] ", letter) : fmt::format("   {}  ", letter);
  }
  fmt::print("{}\n", line);
  for (int64_t h = 0; h < kHeads; ++h) {
    line = fmt::format("head {}  ", h);
    for (int64_t t = 0; t < kTokens; ++t) line += fmt::format(" {:.2f} ", weights[0][h][t].item<float>());
    fmt::print("{}\n", line);
  }
  fmt::print("answer  {}\n", static_cast<char>('a' + logits.argmax(-1).item<int64_t>()));
}

int run(int64_t steps, uint64_t seed, const std::string& device_name) {
  const bool cuda = device_name == "cuda" || (device_name == "auto" && at::hasCUDA());
  TORCH_CHECK_VALUE(!cuda || at::hasCUDA(), "expected a CUDA device for --device cuda, got none");
  const at::Device device(cuda ? at::kCUDA : at::kCPU);
  at::manual_seed(seed);
  Model model;
  model->to(device);
  train(model, steps, device);

  model->eval();
  const at::NoGradGuard no_grad;
  const double share = accuracy(model, device);
  fmt::print("\naccuracy on 1000 new rows: {:.1f} %\n", 100 * share);
  show(model, device);
  if (share >= 0.99) return 0;
  fmt::print("\nnot learned: expected at least 99 %\n");
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Trains one attention layer to copy the word at a marked position; exit status 1 if it fails.",
               "attentive-learn-copy");
  int64_t steps = 300;
  uint64_t seed = 1;
  std::string device = "auto";
  app.add_option("--steps", steps, "Optimizer steps")
      ->capture_default_str()
      ->check(apps::whole_number(1, apps::kMostSteps));
  app.add_option("--seed", seed, "Seed of weights and data")
      ->capture_default_str()
      ->check(apps::seed_number());
  apps::add_device(app, device);
  return apps::run_main(app, argc, argv, [&] { return run(steps, seed, device); }, {.failed = 2});
}
