// What a token and a sequence take with 16 heads of 128 features: attention over a cache, over a cache that
// four heads share, over latents, and the gated delta rule (docs/guide/delta_rule.md, latent_attention.md).
// One thread; the least of calls in turns, and their median.
//
//   mixer_bench

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include <attentive/functional/attention.h>
#include <attentive/functional/gated_delta_rule.h>

#include "support/timing.h"

namespace {

constexpr int64_t kHeads = 16, kDim = 128, kLatent = 512, kRotary = 64;

struct Case {
  std::string name;
  std::function<void()> call;
};

at::Tensor draw(int64_t heads, int64_t tokens, int64_t features, at::ScalarType type) {
  return at::randn({1, heads, tokens, features}).to(type);
}

Case attends(const std::string& name, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  return {name, [=] { attentive::attention(q, k, v, {.causal = attentive::Causal::BottomRight}); }};
}

Case remembers(int64_t tokens, at::ScalarType type) {
  const auto q = draw(kHeads, tokens, kDim, type), k = draw(kHeads, tokens, kDim, type),
             v = draw(kHeads, tokens, kDim, type);
  const auto gate = -0.2 * at::rand({1, kHeads, tokens}), beta = at::rand({1, kHeads, tokens});
  auto state = at::zeros({1, kHeads, kDim, kDim});
  return {"delta rule", [=]() mutable {
            attentive::gated_delta_rule_(state, q, k, v, gate.to(type), beta.to(type),
                                         {.normalize_eps = 1e-6});
          }};
}

void measure(const std::string& title, const std::vector<Case>& cases) {
  std::vector<std::vector<double>> times(cases.size());
  const bench::Timer all;
  while (all.seconds() < 4 || times.back().size() < 5) {
    for (size_t n = 0; n < cases.size(); ++n) {
      const bench::Timer timer;
      cases[n].call();
      times[n].push_back(timer.seconds() * 1e6);
    }
  }
  std::string line = fmt::format("{:20}", title);
  for (size_t n = 0; n < cases.size(); ++n)
    line += fmt::format("  {} {:.0f} us ({:.0f})", cases[n].name,
                        *std::min_element(times[n].begin(), times[n].end()), bench::median_of(times[n]));
  fmt::print("{}\n", line);
}

void measure_token(at::ScalarType type, int64_t keys) {
  const auto q = draw(kHeads, 1, kDim, type), k = draw(kHeads, keys, kDim, type),
             v = draw(kHeads, keys, kDim, type);
  const auto latents = draw(1, keys, kLatent + kRotary, type);
  measure(
      fmt::format("{} token, {} keys", c10::toString(type), keys),
      {attends("16 heads", q, k, v), attends("4 key heads", q, k.narrow(1, 0, 4), v.narrow(1, 0, 4)),
       attends("latents", draw(kHeads, 1, kLatent + kRotary, type), latents, latents.narrow(3, 0, kLatent)),
       remembers(1, type)});
}

void measure_sequence(at::ScalarType type, int64_t tokens) {
  const auto q = draw(kHeads, tokens, kDim, type), k = draw(kHeads, tokens, kDim, type),
             v = draw(kHeads, tokens, kDim, type);
  measure(fmt::format("{} forward, {}", c10::toString(type), tokens),
          {attends("16 heads", q, k, v), remembers(tokens, type)});
}

}  // namespace

int main() {
  const c10::InferenceMode inference;
  at::set_num_threads(1);
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    for (const int64_t keys : {1024, 8192, 65536}) measure_token(type, keys);
    for (const int64_t tokens : {256, 1024, 4096}) measure_sequence(type, tokens);
  }
}
