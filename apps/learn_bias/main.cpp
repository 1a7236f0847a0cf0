// attentive-learn-bias: trains one attention layer whose only knowledge of positions is a learned bias, and
// draws the table that it learned.

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <system_error>
#include <utility>

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
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

constexpr int64_t kTokens = 48;
constexpr int64_t kWords = 16;
constexpr int64_t kWidth = 32;
constexpr int64_t kHeads = 4;
constexpr int64_t kShown = 32;                  // distances in the printed table and in the picture
constexpr std::array<int64_t, 2> kBack{3, 11};  // each token must name the words this far before it

// Embeddings, one causal attention layer, and for each question a linear layer. Nothing but the bias tells
// the layer where a token stands.
struct ModelImpl : torch::nn::Module {
  ModelImpl() {
    word = register_module("word", torch::nn::Embedding(kWords, kWidth));
    const auto bias = attentive::RelativePositionBiasOptions(kHeads).bidirectional(false);
    attention = register_module(
        "attention", attentive::MultiHeadAttention(attentive::MultiHeadAttentionOptions(
                                                       kWidth, kWidth, kTokens, /*dropout=*/0.0, kHeads)
                                                       .position_bias(bias)));
    near = register_module("near", torch::nn::Linear(kWidth, kWords));
    far = register_module("far", torch::nn::Linear(kWidth, kWords));
    // The table begins at zero instead of random numbers, so that it shows nothing but what it has learned.
    const at::NoGradGuard no_grad;
    table()->weight.zero_();
  }

  // Returns the logits of both questions, (B, T, kWords) each.
  std::array<at::Tensor, 2> forward(const at::Tensor& words) {
    const auto context = attention->forward(word->forward(words));
    return {near->forward(context), far->forward(context)};
  }

  // The bias of every head for keys 0, 1, 2, … tokens before the query: (kHeads, kShown).
  at::Tensor bias_by_distance() { return table()->forward(1, kShown).select(1, 0).flip(1).cpu(); }

  attentive::RelativePositionBiasImpl* table() {
    return attention->position_bias->as<attentive::RelativePositionBias>();
  }

  torch::nn::Embedding word{nullptr};
  attentive::MultiHeadAttention attention{nullptr};
  torch::nn::Linear near{nullptr}, far{nullptr};
};
TORCH_MODULE(Model);

at::Tensor random_words(int64_t rows, const at::Device& device) {
  return at::randint(kWords, {rows, kTokens}, at::kLong).to(device);
}

// The logits of one question at the tokens that have an answer, and these answers.
std::pair<at::Tensor, at::Tensor> answered(const at::Tensor& logits, const at::Tensor& words, int64_t back) {
  const auto count = kTokens - back;
  return {logits.narrow(1, back, count).flatten(0, 1), words.narrow(1, 0, count).flatten()};
}

void train(Model& model, int64_t steps, const at::Device& device) {
  torch::optim::Adam optimizer(model->parameters(), torch::optim::AdamOptions(0.01));
  fmt::print("step   loss     (guessing: ln {} = {:.4f})\n", kWords, std::log(static_cast<double>(kWords)));
  for (int64_t step = 0; step <= steps; ++step) {
    const auto words = random_words(16, device);
    const auto logits = model->forward(words);
    at::Tensor loss;
    for (size_t n = 0; n < kBack.size(); ++n) {
      const auto [said, right] = answered(logits[n], words, kBack[n]);
      const auto term = torch::nn::functional::cross_entropy(said, right) / static_cast<double>(kBack.size());
      loss = loss.defined() ? loss + term : term;
    }
    if (step % 50 == 0) fmt::print("{:4}   {:.4f}\n", step, loss.item<float>());
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
  }
}

double accuracy(const at::Tensor& logits, const at::Tensor& words, int64_t back) {
  const auto [said, right] = answered(logits, words, back);
  return said.argmax(-1).eq(right).to(at::kDouble).mean().item<double>();
}

void print_table(const at::Tensor& bias) {
  fmt::print("\nbias of a key so many tokens before the query\ntokens ");
  for (int64_t d = 0; d < 16; ++d) fmt::print("{:6}", d);
  for (int64_t h = 0; h < kHeads; ++h) {
    fmt::print("\nhead {} ", h);
    for (int64_t d = 0; d < 16; ++d) fmt::print("{:6.1f}", bias[h][d].item<float>());
  }
  fmt::print("\n");
}

// A line chart: one curve per head, with the distance to the right.
std::string picture(const at::Tensor& bias) {
  constexpr double width = 720, height = 360, left = 50, right = 90, top = 40, bottom = 50;
  constexpr std::array colours{"#4a90d9", "#d9734a", "#4aa564", "#9b6bc3"};
  const double low = std::floor(bias.min().item<double>()), high = std::ceil(bias.max().item<double>());
  const auto x = [&](int64_t distance) {
    return left + (width - left - right) * static_cast<double>(distance) / (kShown - 1);
  };
  const auto y = [&](double value) {
    return height - bottom - (height - top - bottom) * (value - low) / (high - low);
  };
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n<style>text{{fill:#777}} "
      ".grid{{stroke:#999;stroke-opacity:.35}} polyline{{fill:none;stroke-width:2}}</style>\n"
      "<text x=\"{2}\" y=\"20\" font-size=\"14\">Learned bias of a key by its distance before the "
      "query</text>\n",
      width, height, left);
  const double step = std::max(1.0, std::ceil((high - low) / 6));
  for (double value = std::ceil(low / step) * step; value <= high; value += step) {
    svg += fmt::format(
        "<line class=\"grid\" x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\"/>"
        "<text x=\"{3}\" y=\"{4:.1f}\" text-anchor=\"end\">{5:.0f}</text>\n",
        left, width - right, y(value), left - 8, y(value) + 4, value == 0 ? 0.0 : value);
  }
  for (int64_t distance = 0; distance < kShown; ++distance) {
    const bool asked = std::find(kBack.begin(), kBack.end(), distance) != kBack.end();
    if (asked)
      svg += fmt::format("<line class=\"grid\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\"/>\n",
                         x(distance), top, height - bottom);
    if (asked || distance % 8 == 0)
      svg += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n", x(distance),
                         height - bottom + 18, distance);
  }
  svg += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">tokens before the query</text>\n",
                     (left + width - right) / 2, height - 12);
  for (int64_t h = 0; h < kHeads; ++h) {
    const auto* colour = colours[static_cast<size_t>(h)];
    svg += fmt::format("<polyline stroke=\"{}\" points=\"", colour);
    for (int64_t d = 0; d < kShown; ++d)
      svg += fmt::format("{:.1f},{:.1f} ", x(d), y(bias[h][d].item<double>()));
    const auto line = top + 20 + 20 * static_cast<double>(h);
    svg += fmt::format(
        "\"/>\n<polyline stroke=\"{}\" points=\"{},{} {},{}\"/><text x=\"{}\" y=\"{}\">head {}</text>\n",
        colour, width - right + 15, line - 4, width - right + 35, line - 4, width - right + 42, line, h);
  }
  return svg + "</svg>\n";
}

void write_picture(const std::string& path, const at::Tensor& bias) {
  std::ofstream file(path, std::ios::binary);
  file << picture(bias) << std::flush;
  if (!file) throw std::system_error(errno, std::generic_category(), "cannot write " + path);
}

int run(int64_t steps, uint64_t seed, const std::string& device_name, const std::string& svg) {
  const bool cuda = device_name == "cuda" || (device_name == "auto" && at::hasCUDA());
  TORCH_CHECK_VALUE(!cuda || at::hasCUDA(), "expected a CUDA device for --device cuda, got none");
  const at::Device device(cuda ? at::kCUDA : at::kCPU);
  at::manual_seed(seed);
  Model model;
  model->to(device);
  train(model, steps, device);

  model->eval();
  const at::NoGradGuard no_grad;
  const auto words = random_words(100, device);
  const auto logits = model->forward(words);
  double least = 1;
  fmt::print("\n");
  for (size_t n = 0; n < kBack.size(); ++n) {
    const auto share = accuracy(logits[n], words, kBack[n]);
    fmt::print("the word {:2} tokens back: {:.1f} % right\n", kBack[n], 100 * share);
    least = std::min(least, share);
  }
  const auto bias = model->bias_by_distance();
  print_table(bias);
  if (!svg.empty()) write_picture(svg, bias);
  if (least >= 0.99) return 0;
  fmt::print("\nnot learned: expected at least 99 %\n");
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Trains an attention layer that knows positions by a learned bias alone; exit status 1 if it fails.",
      "attentive-learn-bias");
  int64_t steps = 400;
  uint64_t seed = 1;
  std::string device = "auto", svg;
  app.add_option("--steps", steps, "Optimizer steps")
      ->capture_default_str()
      ->check(apps::whole_number(1, apps::kMostSteps));
  app.add_option("--seed", seed, "Seed of weights and data")
      ->capture_default_str()
      ->check(apps::seed_number());
  app.add_option("--svg", svg, "A file for a picture of the learned bias");
  apps::add_device(app, device);
  return apps::run_main(app, argc, argv, [&] { return run(steps, seed, device, svg); }, {.failed = 2});
}
