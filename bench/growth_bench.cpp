// Time and memory of one causal forward pass against T.

#include <ATen/ATen.h>

#include <attentive/functional/attention.h>

#include "inputs.h"
#include "suites.h"
#include "support/memory.h"
#include "support/timer.h"

namespace bench {
namespace {

constexpr int64_t kComposedUpTo = 4096;  // 3 GiB of scores and weights there, 48 GiB at 16k

double median_seconds(const std::function<Tensors()>& run, double budget) {
  std::vector<double> samples;
  const Timer all;
  do {
    const Timer timer;
    run();
    samples.push_back(timer.seconds());
  } while (samples.size() < 200 && all.seconds() < budget);
  return spread_of(samples).median;
}

}  // namespace

void growth_suite(Runner& runner) {
  if (!runner.wants(at::kFloat)) return;
  const at::NoGradGuard no_grad;
  const attentive::AttentionOptions causal{.causal = attentive::Causal::BottomRight};
  attentive::AttentionOptions window = causal;
  window.window = {kWindow - 1, 0};
  for (int64_t T = 256; T <= 16384; T *= 2) {
    if (!runner.wants(Case{"growth", "T=" + token_count(T), "fp32"})) continue;
    const auto x = make_qkv({1, 12, T, 64}, at::kFloat);
    std::vector<Contender> ways = {
        {"attentive", [=] { return Tensors{attentive::attention(x.q, x.k, x.v, causal)}; }},
        {"attentive, window 256", [=] { return Tensors{attentive::attention(x.q, x.k, x.v, window)}; }},
        {"torch sdpa", [=] { return Tensors{sdpa(x, true)}; }}};
    if (T <= kComposedUpTo) ways.push_back({"composed", [=] { return Tensors{composed(x, true, 0.0)}; }});
    const double error = difference(ways[0].run(), ways[2].run());
    if (!(error <= 1e-4)) throw std::runtime_error("growth: wrong result, not timed");
    for (const auto& way : ways) {
      const double bytes = peak_growth([&] { way.run(); });
      runner.add({way.name, T, median_seconds(way.run, runner.settings().budget / 4), bytes});
    }
  }
}

}  // namespace bench
