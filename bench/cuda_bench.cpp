// attentive-cuda-bench: times this package's attention on a GPU against PyTorch's own ways, after checking
// each result, and prints a table in Markdown.

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <CLI/CLI.hpp>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/cuda.h>

#include <attentive/functional/attention.h>
#include <attentive/functional/explain.h>

#include "common/run_main.h"
#include "inputs.h"

namespace {

using attentive::AttentionOptions;
using attentive::Backend;
using attentive::Causal;
using bench::Qkv;

constexpr int kFailed = 1;
constexpr int kUnusable = 2;
constexpr int kRounds = 7;
constexpr double kSample = 0.02;  // seconds of one sample

struct Settings {
  std::string device = "cuda";
  std::vector<std::string> suites, dtypes = {"bf16", "fp32"};
  std::vector<int64_t> tokens = {512, 1024, 2048, 4096, 8192, 16384}, head_dims = {64, 128};
  int64_t heads = 16;
};

struct Way {
  std::string name;
  std::function<at::Tensor()> output;  // for the check
  std::function<void()> run;
};

void synchronize(const Settings& settings) {
  if (settings.device == "cuda") torch::cuda::synchronize();
}

// Median seconds of one call.
double time(const Settings& settings, const std::function<void()>& run) {
  const auto seconds_of = [&](int calls) {
    synchronize(settings);
    const auto start = std::chrono::steady_clock::now();
    for (int n = 0; n < calls; ++n) run();
    synchronize(settings);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / calls;
  };
  seconds_of(2);  // warm
  const int calls = std::clamp(static_cast<int>(kSample / std::max(seconds_of(1), 1e-7)), 1, 1000);
  std::vector<double> samples;
  for (int round = 0; round < kRounds; ++round) samples.push_back(seconds_of(calls));
  std::nth_element(samples.begin(), samples.begin() + kRounds / 2, samples.end());
  return samples[kRounds / 2];
}

// One cell: the time, or why there is none.
std::string cell(const Settings& settings, const Way& way, const at::Tensor& reference, double allowed,
                 bool& wrong) {
  try {
    if (reference.defined()) {
      const auto got = way.output();
      const double largest = reference.abs().max().item<double>();
      const double error =
          (got.to(at::kFloat) - reference).abs().max().item<double>() / std::max(largest, 1e-12);
      if (!(error <= allowed)) {
        wrong = true;
        return fmt::format("WRONG: {:.2g}", error);
      }
    }
    return fmt::format("{:.3f} ms", 1e3 * time(settings, way.run));
  } catch (const c10::OutOfMemoryError&) {
    return "out of memory";
  } catch (const c10::ValueError&) {
    return "–";  // the backend cannot express the call
  }
}

struct Case {
  std::string suite;
  bool backward = false, decode = false;
  AttentionOptions options;
  double dropout = 0.0;
  std::function<at::Tensor(const Qkv&)> torch_way;
};

at::Tensor band(int64_t tokens, int64_t width, const at::Device& device) {
  return at::ones({tokens, tokens}, at::TensorOptions(device).dtype(at::kBool)).tril().triu(1 - width);
}

std::vector<Case> cases_for(int64_t tokens) {
  const int64_t width = std::max<int64_t>(1, std::min<int64_t>(256, tokens / 2));
  const auto plain = [](double p) {
    return [p](const Qkv& x) { return at::scaled_dot_product_attention(x.q, x.k, x.v, {}, p, true); };
  };
  const AttentionOptions causal{.causal = Causal::BottomRight};
  auto dropped = causal, windowed = causal, capped = causal;
  dropped.dropout_p = 0.1;
  windowed.window = {width - 1, 0};
  capped.softcap = 30.0;
  return {
      {.suite = "forward", .options = causal, .torch_way = plain(0.0)},
      {.suite = "forward+backward", .backward = true, .options = causal, .torch_way = plain(0.0)},
      {.suite = "dropout", .backward = true, .options = dropped, .dropout = 0.1, .torch_way = plain(0.1)},
      {.suite = "window",
       .options = windowed,
       .torch_way =
           [width](const Qkv& x) {
             return at::scaled_dot_product_attention(x.q, x.k, x.v, band(x.q.size(2), width, x.q.device()));
           }},
      {.suite = "softcap",
       .backward = true,
       .options = capped,
       .torch_way =
           [](const Qkv& x) {
             auto scores = at::matmul(x.q, x.k.mT()) / std::sqrt(static_cast<double>(x.q.size(3)));
             scores = (scores / 30.0).tanh() * 30.0;
             const auto hidden = band(x.q.size(2), x.q.size(2), x.q.device()).logical_not();
             return at::matmul(scores.masked_fill(hidden, -INFINITY).softmax(-1), x.v);
           }},
      {.suite = "decode",
       .decode = true,
       .options = {},
       .torch_way = [](const Qkv& x) { return at::scaled_dot_product_attention(x.q, x.k, x.v); }},
  };
}

Qkv inputs(const Settings& settings, const Case& c, int64_t tokens, int64_t head_dim, at::ScalarType type) {
  auto x = bench::make_qkv({1, settings.heads, tokens, head_dim}, type);
  if (c.decode) x.q = x.q.narrow(2, tokens - 1, 1);
  for (auto* t : {&x.q, &x.k, &x.v}) *t = t->to(settings.device).contiguous().requires_grad_(c.backward);
  return x;
}

bool run_case(const Settings& settings, const Case& c, int64_t tokens, int64_t head_dim,
              at::ScalarType type) {
  const auto x = inputs(settings, c, tokens, head_dim, type);
  const at::AutoGradMode grad(c.backward);
  at::Tensor direction;
  const auto way = [&](const std::string& name, std::function<at::Tensor()> forward) {
    Way result{name, forward, [forward] { forward(); }};
    if (c.backward) result.run = bench::with_backward(x, direction, forward);
    return result;
  };
  direction = at::randn_like(x.q);
  const auto ours = [&](Backend backend) {
    auto options = c.options;
    options.backend = backend;
    return [x, options] { return attentive::attention(x.q, x.k, x.v, options); };
  };
  const std::vector<Way> ways = {way("auto", ours(Backend::Auto)), way("native", ours(Backend::Native)),
                                 way("reference", ours(Backend::Reference)),
                                 way("torch", [&] { return c.torch_way(x); })};
  // Dropout draws differ between the ways: tests compare them, not this. A long reference may not fit.
  at::Tensor reference;
  if (c.dropout == 0.0) {
    try {
      const at::NoGradGuard no_grad;
      auto exact = c.options;
      exact.backend = Backend::Reference;
      reference = attentive::attention(x.q.to(at::kFloat), x.k.to(at::kFloat), x.v.to(at::kFloat), exact);
    } catch (const c10::OutOfMemoryError&) {
    }
  }
  const auto chosen = attentive::explain(x.q, x.k, x.v, c.options).chosen;
  std::string line = fmt::format("| {} | {} | {} | {} | {} |", c.suite, bench::type_name(type), head_dim,
                                 tokens, attentive::to_string(chosen));
  bool wrong = false;
  for (const auto& each : ways) {
    line += fmt::format(" {} |", cell(settings, each, reference, type == at::kFloat ? 2e-3 : 3e-2, wrong));
  }
  if (c.dropout == 0.0 && !reference.defined()) line += " not checked";
  fmt::print("{}\n", line);
  apps::flush_output();
  return !wrong;
}

bool wants(const std::vector<std::string>& wanted, const std::string& name) {
  return wanted.empty() || std::find(wanted.begin(), wanted.end(), name) != wanted.end();
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Times attentive on a GPU against PyTorch's own ways (batch 1) and prints a Markdown table; a wrong "
      "result is\n"
      "not timed. Exit status: 0, 1 if a result was wrong, 2 for wrong arguments or no such device.",
      "attentive-cuda-bench");
  Settings settings;
  app.add_option("--device", settings.device, "cpu is for trying this program")
      ->check(CLI::IsMember({"cuda", "cpu"}))
      ->capture_default_str();
  app.add_option("--suite", settings.suites, "all if none is named")
      ->check(CLI::IsMember({"forward", "forward+backward", "dropout", "window", "softcap", "decode"}));
  app.add_option("--dtype", settings.dtypes)->check(CLI::IsMember({"bf16", "fp32"}))->capture_default_str();
  app.add_option("--tokens", settings.tokens)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--head-dim", settings.head_dims)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--heads", settings.heads)->check(CLI::PositiveNumber)->capture_default_str();
  return apps::run_main(app, argc, argv, [&] {
    if (settings.device == "cuda" && !at::hasCUDA()) {
      apps::print_error("attentive-cuda-bench: no CUDA device");
      return kUnusable;
    }
    bool right = true;
    fmt::print("| suite | dtype | D | T | auto takes | auto | native | reference | torch |\n");
    fmt::print("|---|---|--:|--:|---|--:|--:|--:|--:|\n");
    for (const auto type : {at::kBFloat16, at::kFloat}) {
      if (!wants(settings.dtypes, bench::type_name(type))) continue;
      for (const auto head_dim : settings.head_dims) {
        for (const auto tokens : settings.tokens) {
          for (const auto& c : cases_for(tokens)) {
            if (wants(settings.suites, c.suite))
              right = run_case(settings, c, tokens, head_dim, type) && right;
          }
        }
      }
    }
    return right ? 0 : kFailed;
  });
}
