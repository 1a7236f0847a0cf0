// Only the attention function, forward.

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <attentive/functional/attention.h>

#include "inputs.h"
#include "suites.h"

namespace bench {
namespace {

void add_forward(Runner& runner, const Shape& shape, bool causal, at::ScalarType type) {
  const attentive::AttentionOptions options{.causal = causal ? attentive::Causal::BottomRight
                                                             : attentive::Causal::None};
  Case c{"forward",
         fmt::format("{} B{} H{} T={} D{}", causal ? "causal" : "full", shape.B, shape.H,
                     token_count(shape.T), shape.D),
         type_name(type), limit_of(type), attention_flops(shape, causal)};
  if (!runner.wants(c)) return;
  const auto x = make_qkv(shape, type);
  c.contenders.push_back(
      {"attentive", [=] { return Tensors{attentive::attention(x.q, x.k, x.v, options)}; }});
  c.contenders.push_back({"torch sdpa", [=] { return Tensors{sdpa(x, causal)}; }});
  if (shape.T <= 1024)
    c.contenders.push_back({"composed", [=] { return Tensors{composed(x, causal, 0.0)}; }});
  runner.run(c);
}

}  // namespace

void forward_suite(Runner& runner) {
  const at::NoGradGuard no_grad;
  for (const auto type : kTypes) {
    if (!runner.wants(type)) continue;
    for (const int64_t T : {128, 256, 512, 1024, 2048, 4096}) add_forward(runner, {1, 12, T, 64}, true, type);
    add_forward(runner, {8, 12, 1024, 64}, true, type);
    for (const int64_t T : {1024, 4096}) add_forward(runner, {1, 12, T, 64}, false, type);
    for (const int64_t T : {1024, 4096}) add_forward(runner, {1, 8, T, 128}, true, type);
  }
}

}  // namespace bench
