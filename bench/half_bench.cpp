// float16 beside float32, and beside PyTorch's function in float16.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <attentive/functional/attention.h>

#include "inputs.h"
#include "suites.h"

namespace bench {
namespace {

constexpr double kAllowed = 5e-3;  // a few roundings of float16

at::Tensor attend(const Qkv& x) {
  return attentive::attention(x.q, x.k, x.v, {.causal = attentive::Causal::BottomRight});
}

Qkv converted(const Qkv& x, at::ScalarType type) {
  const auto one = [&](const at::Tensor& t) { return t.detach().to(type).requires_grad_(t.requires_grad()); };
  return {one(x.q), one(x.k), one(x.v)};
}

// The attention function alone, forward or with its backward pass. The result is compared with that of the
// same numbers in float32.
void add_half(Runner& runner, int64_t T, bool backward) {
  const Shape shape{1, 12, T, 64};
  Case c{"half", fmt::format("{} causal B1 H12 T={} D64", backward ? "fwd+bwd" : "forward", token_count(T)),
         type_name(at::kHalf), limit_of(at::kHalf),
         (backward ? kWithBackward : 1.0) * attention_flops(shape, true)};
  if (!runner.wants(c)) return;
  const auto x = make_qkv(shape, at::kHalf, backward), wide = converted(x, at::kFloat);
  const auto grad = at::randn_like(wide.q);
  const auto contender = [&](std::string name, const Qkv& in, at::Tensor (*attention)(const Qkv&)) {
    if (backward) {
      c.contenders.push_back(
          {std::move(name), with_backward(in, grad.to(in.q.scalar_type()), [=] { return attention(in); })});
    } else {
      c.contenders.push_back({std::move(name), [=] {
                                const at::NoGradGuard no_grad;
                                return Tensors{attention(in)};
                              }});
    }
  };
  contender("attentive", x, attend);
  contender("attentive, float32", wide, attend);
  contender("torch sdpa", x, [](const Qkv& in) { return sdpa(in, /*causal=*/true); });
  c.allowed = kAllowed;
  runner.run(c);
}

}  // namespace

void half_suite(Runner& runner) {
  if (!runner.wants(at::kHalf)) return;
  for (const bool backward : {false, true}) {
    for (const int64_t T : {1024, 4096}) add_half(runner, T, backward);
  }
}

}  // namespace bench
