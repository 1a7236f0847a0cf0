// Time of a token that a GPT writes with its cache, against plainly reading what it must read: the weights
// and the keys and values so far.
//
//   build/release/bench/gpt_decode_bench [--preset gpt2|small|large] [--threads N]
//
// Both take turns in one run. gpt2: 12 layers, 12 heads, width 768, 50257 tokens; small and large: the
// presets of attentive-train with a context of 1025 tokens. Weights are random: they decide nothing about
// time.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <CLI/CLI.hpp>

#include <attentive/models/gpt.h>

#include "common/run_main.h"
#include "support/peaks.h"

namespace {

using namespace attentive;

constexpr int64_t kTokens = 1024;  // in the cache when the timed token comes
constexpr int kTurns = 30;

GPTOptions options_of(const std::string& preset) {
  constexpr int64_t context = kTokens + 1;
  if (preset == "small") return GPTOptions(65, context, 128, 4, 4).bias(false).tied(true);
  if (preset == "large") return GPTOptions(65, context, 384, 6, 6).bias(false).tied(true);
  return GPTOptions(50257, context, 768, 12, 12).qkv_bias(true).tied(true);
}

template <class F>
double seconds_of(const F& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void run(const std::string& preset) {
  const at::NoGradGuard no_grad;
  at::manual_seed(1);
  GPT model(options_of(preset));
  model->eval();
  const auto vocab = model->options.vocab_size();
  const auto cache = model->make_cache();
  for (int64_t at = 0; at < kTokens; at += 128) {
    model->forward_cached(at::randint(vocab, {1, 128}, at::kLong), *cache);
  }
  const auto token = at::randint(vocab, {1, 1}, at::kLong);
  const auto head = model->options.emb_dim();
  const auto kv = at::ones({2 * model->options.num_layers() * kTokens * head});

  // Of the tables, one row of the positions is read; the tied embedding is read whole, by the head.
  std::vector<at::Tensor> read{kv};
  double bytes = static_cast<double>(kv.nbytes());
  for (const auto& item : model->named_parameters()) {
    if (item.key().starts_with("pos_emb")) continue;
    read.push_back(item.value());
    bytes += static_cast<double>(item->nbytes());
  }
  std::vector<double> tokens, reads;
  double sink = 0;
  for (int turn = 0; turn < kTurns + 3; ++turn) {
    const auto decode = seconds_of([&] { model->forward_cached(token, *cache); });
    cache->truncate(kTokens);
    const auto plain = seconds_of([&] {
      for (const auto& t : read)
        sink += bench::read_all(t.const_data_ptr<float>(), static_cast<long>(t.numel()));
    });
    if (turn < 3) continue;
    tokens.push_back(decode);
    reads.push_back(plain);
  }
  std::printf(
      "%s, %d threads, %lld tokens in the cache, %.1f MB of weights and cache: token %.3f ms, plain read "
      "%.3f ms "
      "(%.1f GB/s), ratio %.2f%s\n",
      preset.c_str(), at::get_num_threads(), static_cast<long long>(kTokens), 1e-6 * bytes,
      1e3 * median(tokens), 1e3 * median(reads), 1e-9 * bytes / median(reads), median(tokens) / median(reads),
      sink == 0 ? " (nothing read)" : "");
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Times a token of cached generation against reading its weights and cache.",
               "gpt_decode_bench");
  std::string preset = "gpt2";
  int threads = at::get_num_threads();
  app.add_option("--preset", preset)->check(CLI::IsMember({"gpt2", "small", "large"}))->capture_default_str();
  app.add_option("--threads", threads)->check(CLI::Range(1, 1024))->capture_default_str();
  return apps::run_main(app, argc, argv, [&] {
    at::set_num_threads(threads);
    run(preset);
    return 0;
  });
}
