// Repeats one call of `attention` for a while, so that a profiler sees nothing else: bench/breakdown.py.
//
//   attention_loop --tokens 4096 --dtype bf16 --seconds 5

#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/randn.h>
#include <CLI/CLI.hpp>

#include <attentive/functional/alibi.h>
#include <attentive/functional/attention.h>

namespace {

struct Settings {
  int64_t tokens = 1024, keys = 0, heads = 12, kv_heads = 0, head_dim = 64, window = 0;
  double dropout = 0, softcap = 0, seconds = 3;
  int threads = 2;
  bool backward = false, alibi = false, full = false;
  std::string dtype = "fp32";
};

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int run(const Settings& s) {
  using namespace attentive;
  at::set_num_threads(s.threads);
  const at::AutoGradMode grad(s.backward);
  const auto type = s.dtype == "bf16" ? at::kBFloat16 : at::kFloat;
  const int64_t keys = s.keys > 0 ? s.keys : s.tokens, kv_heads = s.kv_heads > 0 ? s.kv_heads : s.heads;
  const auto draw = [&](int64_t heads, int64_t tokens) {
    return at::randn({1, heads, tokens, s.head_dim}).to(type).requires_grad_(s.backward);
  };
  const auto q = draw(s.heads, s.tokens), k = draw(kv_heads, keys), v = draw(kv_heads, keys);
  const auto grad_output = at::randn(q.sizes()).to(type);
  AttentionOptions options;
  options.causal = s.full ? Causal::None : Causal::BottomRight;
  if (s.window > 0) options.window = {s.window - 1, 0};
  options.dropout_p = s.dropout;
  if (s.softcap > 0) options.softcap = s.softcap;
  options.backend = Backend::Native;
  AttentionExtras extras;
  if (s.alibi) extras.alibi_slopes = alibi_slopes(s.heads);

  long calls = 0;
  const double start = now();
  double end = start;
  for (; end - start < s.seconds; end = now(), ++calls) {
    const auto output = attention(q, k, v, options, extras).output;
    if (!s.backward) continue;
    output.backward(grad_output);
    for (const auto& x : {q, k, v})
      x.mutable_grad() = at::Tensor();  // adding to the last call's is not part of this one
  }
  std::printf("%ld calls, %.6f s a call\n", calls, (end - start) / static_cast<double>(calls));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Settings s;
  CLI::App app{"Repeats one attention call, causal unless --full, for a profiler."};
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
  app.add_option("--dtype", s.dtype)->check(CLI::IsMember({"fp32", "bf16"}))->capture_default_str();
  app.add_flag("--backward", s.backward);
  app.add_flag("--alibi", s.alibi);
  app.add_flag("--full", s.full, "not causal");
  CLI11_PARSE(app, argc, argv);
  try {
    return run(s);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "attention_loop: %s\n", error.what());
    return 1;
  }
}
