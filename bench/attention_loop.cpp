// Repeats one call of `attention`, of the chapter-3 module or of a Llama with a new prompt for a while, so
// that a profiler sees nothing else. Used by bench/breakdown.py.
//
//   attention_loop --tokens 4096 --dtype bf16 --seconds 5
//   attention_loop --prompt --tokens 512
//   attention_loop --module --batch 8 --tokens 1024 --backward --dropout 0.1

#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randn_like.h>
#include <CLI/CLI.hpp>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <attentive/functional/attention.h>
#include <attentive/models/llama.h>
#include <attentive/modules/multi_head_attention.h>
#include <attentive/score/score_mod.h>

#include "common/run_main.h"
#include "support/timing.h"

namespace {

struct Settings {
  int64_t batch = 1, tokens = 1024, keys = 0, heads = 12, kv_heads = 0, head_dim = 64, window = 0;
  double dropout = 0, softcap = 0, seconds = 3;
  int threads = 2;
  bool backward = false, alibi = false, bias = false, weights = false, mask = false, sigmoid = false,
       own_alibi = false, full = false, module = false, prompt = false;
  std::string dtype = "fp32";
};

using Tensors = std::vector<at::Tensor>;
using Call = std::function<Tensors()>;

at::ScalarType type_of(const Settings& s) {
  return s.dtype == "bf16" ? at::kBFloat16 : s.dtype == "fp16" ? at::kHalf : at::kFloat;
}

// `leaves` receives the tensors that get gradients.
Call attention_call(const Settings& s, Tensors* leaves) {
  using namespace attentive;
  const int64_t keys = s.keys > 0 ? s.keys : s.tokens, kv_heads = s.kv_heads > 0 ? s.kv_heads : s.heads;
  const auto draw = [&](int64_t heads, int64_t tokens) {
    return at::randn({s.batch, heads, tokens, s.head_dim}).to(type_of(s)).requires_grad_(s.backward);
  };
  const auto q = draw(s.heads, s.tokens), k = draw(kv_heads, keys), v = draw(kv_heads, keys);
  *leaves = {q, k, v};
  AttentionOptions options;
  options.causal = s.full ? Causal::None : Causal::BottomRight;
  if (s.window > 0) options.window = {s.window - 1, 0};
  options.dropout_p = s.dropout;
  if (s.softcap > 0) options.softcap = s.softcap;
  options.backend = Backend::Native;
  AttentionExtras extras;
  if (s.alibi) extras.alibi_slopes = alibi_slopes(s.heads);
  if (s.mask) extras.mask = at::rand({s.tokens, keys}).lt(0.9);
  if (s.bias) {
    const auto bias = at::randn({s.heads, s.tokens, keys}).to(type_of(s)).requires_grad_(s.backward);
    extras.mask = Mask::per_head(Mask::bias(bias));
    leaves->push_back(bias);
  }
  if (s.weights) extras.weights = Weights::Clean;
  if (s.own_alibi) {
    const auto slope = captured(alibi_slopes(s.heads));
    extras.score = score_mod(
        [=](auto score, auto pair) { return score - slope(pair.head) * abs(pair.query - pair.key); });
  }
  if (s.sigmoid) {
    extras.score = score_mod([](auto score, auto pair) { return sigmoid(score - log(pair.keys)); });
    extras.normalise = Normalise::None;
  }
  return [=] {
    const auto result = attention(q, k, v, options, extras);
    return s.weights ? Tensors{result.output, result.weights} : Tensors{result.output};
  };
}

Call module_call(const Settings& s, Tensors* leaves) {
  const int64_t width = s.heads * s.head_dim;
  attentive::MultiHeadAttention module(width, width, s.tokens, s.dropout, s.heads);
  module->to(type_of(s));
  module->train(s.backward);
  const auto x = at::randn({s.batch, s.tokens, width}).to(type_of(s)).requires_grad_(s.backward);
  *leaves = module->parameters();
  leaves->push_back(x);
  return [=]() mutable { return Tensors{module->forward(x)}; };
}

// The Llama of bench/league: 150 million parameters.
Call prompt_call(const Settings& s) {
  const auto options = attentive::LlamaOptions(32000, 768, 12, 16).num_kv_heads(4).hidden_dim(2048);
  attentive::Llama model(options);
  model->to(type_of(s));
  model->eval();
  const auto ids = at::randint(options.vocab_size(), {s.batch, s.tokens}, at::kLong);
  const std::shared_ptr<attentive::KVCache> cache = model->make_cache(s.batch, s.tokens);
  return [=]() mutable {
    const at::NoGradGuard no_grad;
    cache->reset();
    return Tensors{model->forward_cached(ids, *cache, {}, attentive::Logits::Last)};
  };
}

int run(const Settings& s) {
  at::set_num_threads(s.threads);
  Tensors leaves;
  const c10::InferenceMode inference(!s.backward && !s.prompt);  // a model is made of normal tensors
  const auto call = s.prompt   ? prompt_call(s)
                    : s.module ? module_call(s, &leaves)
                               : attention_call(s, &leaves);
  Tensors gradients;
  if (s.backward) {
    for (const auto& result : call()) gradients.push_back(at::randn_like(result));
  }
  long calls = 0;
  double seconds = 0.0;
  for (const bench::Timer timer; seconds < s.seconds; seconds = timer.seconds(), ++calls) {
    const auto results = call();
    if (!s.backward) continue;
    torch::autograd::backward(results, gradients);
    for (auto& x : leaves)
      x.mutable_grad() = at::Tensor();  // accumulating onto the previous gradients is not part of this call
  }
  std::printf("%ld calls, %.6f s a call\n", calls, seconds / static_cast<double>(calls));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Settings s;
  CLI::App app("Repeats one attention call, causal unless --full, for a profiler.", "attention_loop");
  app.add_option("--batch", s.batch)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--tokens", s.tokens)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--keys", s.keys, "as many as tokens if not given")->check(CLI::PositiveNumber);
  app.add_option("--heads", s.heads)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--kv-heads", s.kv_heads, "as many as heads if not given")->check(CLI::PositiveNumber);
  app.add_option("--head-dim", s.head_dim)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--window", s.window)->check(CLI::PositiveNumber);
  app.add_option("--dropout", s.dropout)->check(CLI::Range(0.0, 0.99));
  app.add_option("--softcap", s.softcap)->check(CLI::PositiveNumber);
  app.add_option("--seconds", s.seconds)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--threads", s.threads)->check(CLI::Range(1, 1024))->capture_default_str();
  app.add_option("--dtype", s.dtype)->check(CLI::IsMember({"fp32", "bf16", "fp16"}))->capture_default_str();
  app.add_flag("--backward", s.backward);
  app.add_flag("--alibi", s.alibi);
  app.add_flag("--bias", s.bias, "a learned bias (H, L, S)");
  app.add_flag("--weights", s.weights, "the weights are a result");
  app.add_flag("--mask", s.mask, "a bool mask (L, S) that hides a tenth of the pairs");
  app.add_flag("--own-alibi", s.own_alibi, "ALiBi as a score function");
  app.add_flag("--sigmoid", s.sigmoid, "sigmoid attention")->excludes("--own-alibi");
  app.add_flag("--module", s.module, "MultiHeadAttention of width heads x head-dim");
  app.add_flag("--full", s.full, "not causal");
  app.add_flag("--prompt", s.prompt, "a Llama of 150 million parameters reads as many tokens into its cache")
      ->excludes("--backward");
  return apps::run_main(app, argc, argv, [&] { return run(s); });
}
