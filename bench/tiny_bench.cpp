// The overhead of a call: a small module on a few tokens, one thread, inference.

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include <attentive/modules/multi_head_attention.h>

#include "inputs.h"
#include "peer_modules.h"
#include "suites.h"
#include "support/threads.h"

namespace bench {

void tiny_suite(Runner& runner) {
  if (!runner.wants(at::kFloat)) return;
  const ThreadCount one(1);
  for (const auto& [width, heads] : {std::pair<int64_t, int64_t>{64, 4}, {768, 12}}) {
    for (const int64_t T : {1, 4, 16}) {
      Case c{"tiny", fmt::format("d{} h{} T={}, 1 thread", width, heads, T), "fp32"};
      if (!runner.wants(c)) continue;
      at::manual_seed(1);
      attentive::MultiHeadAttention module(width, width, 16, 0.0, heads);
      module->eval();
      const PeerModules peers(module, 16, 0.0);
      const auto x = at::randn({1, T, width});
      const auto way = [&](const char* name, std::function<at::Tensor()> forward) {
        c.contenders.push_back({name, [forward = std::move(forward)] {
                                  const c10::InferenceMode inference;
                                  return Tensors{forward()};
                                }});
      };
      way("attentive", [=]() mutable { return module->forward(x); });
      way("chapter-3 code", [=] { return peers.notebook(x); });
      way("linear + torch sdpa", [=] { return peers.fused(x); });
      way("nn::MultiheadAttention", [=] { return peers.library(x); });
      runner.run(c);
    }
  }
}

}  // namespace bench
