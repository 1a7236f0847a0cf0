// The time of a token that a GPT or a Llama generates with its cache, compared with plainly reading the
// memory that it must read: the weights and all keys and values so far.
//
//   build/release/bench/gpt_decode_bench [--preset gpt2|small|large|llama] [--threads N]
//
// Both alternate in one run. gpt2: 12 layers, 12 heads, width 768, 50257 tokens; small and large: the presets
// of attentive-train with a context of 1025 tokens; llama: a Llama with gpt2's layers, heads and width, gates
// of 2048 features and 32000 tokens. Weights are random, as they do not affect the time.

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
#include <fmt/format.h>

#include <attentive/models/generate.h>
#include <attentive/models/gpt.h>
#include <attentive/models/llama.h>

#include "common/run_main.h"
#include "support/machine.h"
#include "support/peaks.h"

namespace {

using namespace attentive;

constexpr int64_t kTokens = 1024;  // in the cache before the timed token
constexpr int kTurns = 30;

constexpr int64_t kContext = kTokens + 1;

GPTOptions gpt_options(const std::string& preset) {
  if (preset == "small") return GPTOptions(65, kContext, 128, 4, 4).bias(false).tied(true);
  if (preset == "large") return GPTOptions(65, kContext, 384, 6, 6).bias(false).tied(true);
  return GPTOptions(50257, kContext, 768, 12, 12).qkv_bias(true).tied(true);
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

// The memory that one token reads: one row of each table, but all of a tied embedding, which the head reads.
template <CausalLanguageModel Model>
std::vector<at::Tensor> read_by(Model& model, const KVCache& cache) {
  const auto& options = cache.options();
  std::vector<at::Tensor> read{
      at::ones({2 * options.layers * kTokens * options.num_kv_heads * options.head_dim})};
  for (const auto& item : model.named_parameters()) {
    const bool table =
        item.key().starts_with("pos_emb") || (item.key().starts_with("tok_emb") && !model.options.tied());
    if (!table) read.push_back(item.value());
  }
  return read;
}

template <CausalLanguageModel Model>
void run(const std::string& preset, Model& model) {
  const at::NoGradGuard no_grad;
  model.eval();
  const auto vocab = model.options.vocab_size();
  const auto cache = model.make_cache(1, kContext);
  for (int64_t at = 0; at < kTokens; at += 128) {
    model.forward_cached(at::randint(vocab, {1, 128}, at::kLong), *cache);
  }
  const auto token = at::randint(vocab, {1, 1}, at::kLong);
  const std::vector<at::Tensor> read = read_by(model, *cache);
  double bytes = 0;
  for (const auto& t : read) bytes += static_cast<double>(t.nbytes());
  std::vector<double> tokens, reads;
  double sink = 0;
  for (int turn = 0; turn < kTurns + 3; ++turn) {
    const auto decode = seconds_of([&] { model.forward_cached(token, *cache); });
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
  app.add_option("--preset", preset)
      ->check(CLI::IsMember({"gpt2", "small", "large", "llama"}))
      ->capture_default_str();
  app.add_option("--threads", threads)->check(CLI::Range(1, 1024))->capture_default_str();
  return apps::run_main(app, argc, argv, [&] {
    at::set_num_threads(threads);
    fmt::print("{}\n", bench::to_string(bench::describe_machine(), threads));
    apps::flush_output();
    at::manual_seed(1);
    if (preset == "llama") {
      Llama model(LlamaOptions(32000, 768, 12, 12).hidden_dim(2048).context_length(kContext));
      run(preset, *model);
    } else {
      GPT model(gpt_options(preset));
      run(preset, *model);
    }
    return 0;
  });
}
