// A causal sliding window. PyTorch's function takes it as a T x T mask, with which it skips no work.

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <attentive/functional/attention.h>

#include "inputs.h"
#include "suites.h"

namespace bench {
namespace {

attentive::AttentionOptions window_of(int64_t width) {
  return {.causal = attentive::Causal::BottomRight, .window = {width - 1, 0}};
}

at::Tensor band(int64_t tokens, int64_t width) {
  return hidden_by(tokens, width, at::kCPU).logical_not_();
}

// The first tokens of a long sequence do not depend on later ones, so they can be checked on a short
// sequence.
Check check_start(const Qkv& x, int64_t width) {
  const int64_t tokens = 4 * width;
  const auto start = [&](const at::Tensor& t) { return t.narrow(2, 0, tokens); };
  const auto package = start(attentive::attention(x.q, x.k, x.v, window_of(width)));
  const auto peer = at::scaled_dot_product_attention(start(x.q), start(x.k), start(x.v), band(tokens, width));
  return {"torch sdpa + mask on the start", difference({package}, {peer}), 1e-4};
}

void against_mask(Runner& runner, int64_t T, int64_t width, at::ScalarType type) {
  const Shape shape{1, 12, T, 64};
  Case c{"window", fmt::format("W={} T={}", width, token_count(T)), type_name(type), limit_of(type),
         window_flops(shape, width)};
  if (!runner.wants(c)) return;
  const auto x = make_qkv(shape, type);
  const auto mask = band(T, width);
  c.contenders.push_back(
      {"attentive", [=] { return Tensors{attentive::attention(x.q, x.k, x.v, window_of(width))}; }});
  c.contenders.push_back(
      {"torch sdpa + mask", [=] { return Tensors{at::scaled_dot_product_attention(x.q, x.k, x.v, mask)}; }});
  runner.run(c);
}

// Shows that the time is linear in T: the same window on ever longer sequences, for which no peer is
// feasible.
void growing(Runner& runner, int64_t T, int64_t width) {
  const Shape shape{1, 12, T, 64};
  Case c{"window", fmt::format("W={} T={}", width, token_count(T)), "fp32", Limit::Fp32,
         window_flops(shape, width)};
  if (!runner.wants(c)) return;
  const auto x = make_qkv(shape, at::kFloat);
  c.check = [=] { return check_start(x, width); };
  c.contenders.push_back(
      {"attentive", [=] { return Tensors{attentive::attention(x.q, x.k, x.v, window_of(width))}; }});
  runner.run(c);
}

}  // namespace

void window_suite(Runner& runner) {
  const at::NoGradGuard no_grad;
  for (const auto type : kTypes) {
    if (!runner.wants(type)) continue;
    against_mask(runner, 1024, 256, type);
    against_mask(runner, 4096, 256, type);
    against_mask(runner, 4096, 1024, type);
  }
  if (!runner.wants(at::kFloat)) return;
  for (const int64_t T : {16384, 65536}) growing(runner, T, 256);
}

}  // namespace bench
