// The time of a token that a GPT or a Llama generates with its cache, compared with plainly reading the
// memory that it must read: the weights, and all keys and values so far.
//
//   build/release/bench/gpt_decode_bench [--preset gpt2|small|large|llama|llama-150m] [--dtype fp32|bf16]
//                                        [--batch N] [--context N] [--threads N] [--turns N]
//
// The token and both reads alternate in one run. gpt2: 12 layers, 12 heads, width 768, 50257 tokens; small
// and large: the presets of attentive-train; llama: a Llama with gpt2's layers, heads and width, gates of
// 2048 features and 32000 tokens; llama-150m: the same with 16 layers and 4 key heads. Weights are random, as
// they do not affect the time. Before it is timed, the token is compared with the model without a cache, or
// in bf16 with the same model in fp32.

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <CLI/CLI.hpp>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <attentive/models/generate.h>
#include <attentive/models/gpt.h>
#include <attentive/models/llama.h>

#include "common/run_main.h"
#include "support/machine.h"
#include "support/peaks.h"
#include "support/timing.h"

namespace {

using namespace attentive;

struct Settings {
  std::string preset = "gpt2", dtype = "fp32";
  int64_t batch = 1;
  int64_t context = 1024;  ///< tokens in the cache before the timed one
  int threads = at::get_num_threads();
  int turns = 30;

  bool bf16() const { return dtype == "bf16"; }
};

GPTOptions gpt_options(const Settings& settings) {
  const auto context = settings.context + 1;
  if (settings.preset == "small") return GPTOptions(65, context, 128, 4, 4).bias(false).tied(true);
  if (settings.preset == "large") return GPTOptions(65, context, 384, 6, 6).bias(false).tied(true);
  return GPTOptions(50257, context, 768, 12, 12).qkv_bias(true).tied(true);
}

LlamaOptions llama_options(const Settings& settings) {
  const bool large = settings.preset == "llama-150m";
  return LlamaOptions(32000, 768, 12, large ? 16 : 12)
      .num_kv_heads(large ? 4 : 12)
      .hidden_dim(2048)
      .context_length(settings.context + 1);
}

template <class F>
double seconds_of(const F& f) {
  const bench::Timer timer;
  f();
  return timer.seconds();
}

// The parameters that one token reads: all but the tables of which it takes a row. The head reads a tied
// embedding.
template <CausalLanguageModel Model>
std::vector<at::Tensor> weights_of(Model& model) {
  std::vector<at::Tensor> weights;
  for (const auto& item : model.named_parameters()) {
    const bool table =
        item.key().starts_with("pos_emb") || (item.key().starts_with("tok_emb") && !model.options.tied());
    if (!table) weights.push_back(item.value());
  }
  return weights;
}

double bytes_of(const std::vector<at::Tensor>& tensors) {
  double bytes = 0;
  for (const auto& t : tensors) bytes += static_cast<double>(t.nbytes());
  return bytes;
}

// Reads the tensors as float32, whatever they are.
double read(const std::vector<at::Tensor>& tensors) {
  double sum = 0;
  for (const auto& t : tensors) {
    sum += bench::read_all(static_cast<const float*>(t.const_data_ptr()),
                           static_cast<long>(t.nbytes() / sizeof(float)));
  }
  return sum;
}

// Fills the cache with all tokens but the last.
template <CausalLanguageModel Model>
void fill(Model& model, const at::Tensor& ids, KVCache& cache) {
  const auto tokens = ids.size(1) - 1;
  for (int64_t offset = 0; offset < tokens; offset += 128)
    model.forward_cached(ids.narrow(1, offset, std::min<int64_t>(128, tokens - offset)), cache);
}

template <CausalLanguageModel Model>
void run(const Settings& settings, Model& model) {
  const at::NoGradGuard no_grad;
  model.eval();
  const auto ids = at::randint(model.options.vocab_size(), {settings.batch, settings.context + 1}, at::kLong);
  const auto token = ids.narrow(1, settings.context, 1);
  const auto expected = model.forward(ids).narrow(1, settings.context, 1);
  if (settings.bf16()) model.to(at::kBFloat16);
  const auto cache = model.make_cache(settings.batch, settings.context + 1);
  fill(model, ids, *cache);
  const auto logits = model.forward_cached(token, *cache).to(at::kFloat);
  const auto largest = expected.abs().max().template item<double>(),
             error = (logits - expected).abs().max().template item<double>() / largest,
             allowed = settings.bf16() ? 3e-2 : 1e-5;
  TORCH_CHECK(error <= allowed, "the logits differ from those of fp32 without a cache by ", error,
              " of the largest one, allowed are ", allowed);

  const auto weights = weights_of(model);
  const auto& sizes = cache->options();
  const std::vector<at::Tensor> keys_and_values{
      at::ones({2 * sizes.layers * settings.batch * settings.context * sizes.num_kv_heads * sizes.head_dim},
               at::TensorOptions(sizes.dtype))};
  std::vector<double> tokens, weight_reads, cache_reads;
  double sink = 0;
  for (int turn = 0; turn < settings.turns + 3; ++turn) {
    cache->truncate(settings.context);
    const auto decode = seconds_of([&] { model.forward_cached(token, *cache); });
    const auto weight_read = seconds_of([&] { sink += read(weights); });
    const auto cache_read = seconds_of([&] { sink += read(keys_and_values); });
    if (turn < 3) continue;
    tokens.push_back(decode);
    weight_reads.push_back(weight_read);
    cache_reads.push_back(cache_read);
  }
  const auto bytes = bytes_of(weights), with_cache = bytes + bytes_of(keys_and_values);
  const auto time = bench::median_of(tokens), plain = bench::median_of(weight_reads),
             both = plain + bench::median_of(cache_reads);
  fmt::print(
      "{} {}, batch {}, {} tokens in the cache, {} threads: token {:.3f} ms; plain read of the weights "
      "({:.1f} MB) {:.3f} ms ({:.1f} GB/s), ratio {:.2f}; of weights and cache ({:.1f} MB) {:.3f} ms, ratio "
      "{:.2f}; error {:.1e}{}\n",
      settings.preset, settings.dtype, settings.batch, settings.context, at::get_num_threads(), 1e3 * time,
      1e-6 * bytes, 1e3 * plain, 1e-9 * bytes / plain, time / plain, 1e-6 * with_cache, 1e3 * both,
      time / both, error, sink == 0 ? " (nothing read)" : "");
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Times a token of cached generation against reading its weights and cache.",
               "gpt_decode_bench");
  Settings settings;
  app.add_option("--preset", settings.preset)
      ->check(CLI::IsMember({"gpt2", "small", "large", "llama", "llama-150m"}))
      ->capture_default_str();
  app.add_option("--dtype", settings.dtype)->check(CLI::IsMember({"fp32", "bf16"}))->capture_default_str();
  app.add_option("--batch", settings.batch)->check(CLI::Range(1, 1024))->capture_default_str();
  app.add_option("--context", settings.context)->check(CLI::Range(1, 1 << 20))->capture_default_str();
  app.add_option("--threads", settings.threads)->check(CLI::Range(1, 1024))->capture_default_str();
  app.add_option("--turns", settings.turns)->check(CLI::Range(1, 100000))->capture_default_str();
  return apps::run_main(app, argc, argv, [&] {
    at::set_num_threads(settings.threads);
    fmt::print("{}\n", bench::to_string(bench::describe_machine(), settings.threads));
    apps::flush_output();
    at::manual_seed(1);
    if (settings.preset.starts_with("llama")) {
      Llama model(llama_options(settings));
      run(settings, *model);
    } else {
      GPT model(gpt_options(settings));
      run(settings, *model);
    }
    return 0;
  });
}
