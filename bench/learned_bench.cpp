// Forward and backward with terms that learn: a bias, ALiBi slopes, and a loss on the weights.

#include <functional>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <attentive/functional/attention.h>

#include "inputs.h"
#include "suites.h"

namespace bench {
namespace {

using attentive::AttentionExtras;
using attentive::AttentionOptions;
using attentive::Backend;
using attentive::Causal;
using attentive::Mask;
using attentive::Weights;

// Checks a result against that of the composed definition.
Check against_definition(const std::function<Tensors(Backend)>& run, at::ScalarType type) {
  return {"composed definition", difference(run(Backend::Auto), run(Backend::Reference)),
          allowed_error(type)};
}

Tensors results(const at::Tensor& output, const Tensors& leaves, const at::Tensor& grad) {
  auto all = torch::autograd::grad({output}, leaves, {grad});
  all.insert(all.begin(), output);
  return all;
}

// A bias (H, T, T), added in every batch item. Beside it stand the step without a bias, and the traffic that
// cannot be saved: two reads of the bias and a write of its gradient.
void bias(Runner& runner, const Shape& shape, at::ScalarType type, bool causal) {
  Case c{"learned",
         fmt::format("bias (H,T,T) {} B{} T={}", causal ? "causal" : "full", shape.B, token_count(shape.T)),
         type_name(type), limit_of(type), kWithBackward * attention_flops(shape, causal)};
  if (!runner.wants(c)) return;
  const auto x = make_qkv(shape, type, /*gradients=*/true);
  const auto grad = at::randn_like(x.q);
  const auto learned = at::randn({shape.H, shape.T, shape.T}).to(type).requires_grad_();
  const AttentionOptions options{.causal = causal ? Causal::BottomRight : Causal::None};
  const auto package = [=](Backend backend) {
    auto with = options;
    with.backend = backend;
    return results(attentive::attention(x.q, x.k, x.v, with, Mask::per_head(Mask::bias(learned))),
                   {x.q, x.k, x.v, learned}, grad);
  };
  c.check = [=] { return against_definition(package, type); };
  c.contenders = {{"attentive", [=] { return package(Backend::Auto); }},
                  {"attentive, no bias",
                   with_backward(x, grad, [=] { return attentive::attention(x.q, x.k, x.v, options); })},
                  {"2 reads + 1 write of it", [=] {
                     const auto plain = learned.detach();
                     const auto first = plain.sum(), second = plain.sum();
                     return Tensors{first, second, at::empty_like(plain).fill_(1)};
                   }}};
  if (shape.T <= 4096 && shape.B == 1) {
    c.contenders.push_back({"composed", [=] {
                              const auto hidden = causal ? hidden_by(shape.T, {}, at::kCPU) : at::Tensor();
                              const auto y = composed(x, {.hidden = hidden, .bias = learned.unsqueeze(0)});
                              return results(y, {x.q, x.k, x.v, learned}, grad);
                            }});
  }
  runner.run(c);
}

void slopes(Runner& runner, const Shape& shape, at::ScalarType type) {
  Case c{"learned", fmt::format("slopes (H) causal T={}", token_count(shape.T)), type_name(type),
         limit_of(type), kWithBackward * attention_flops(shape, true)};
  if (!runner.wants(c)) return;
  const auto x = make_qkv(shape, type, /*gradients=*/true);
  const auto grad = at::randn_like(x.q);
  const auto fixed = attentive::alibi_slopes(shape.H), learned = fixed.clone().requires_grad_();
  const auto package = [=](const at::Tensor& of, Backend backend) {
    const auto y = attentive::attention(x.q, x.k, x.v, {.causal = Causal::BottomRight, .backend = backend},
                                        AttentionExtras{.alibi_slopes = of})
                       .output;
    Tensors leaves = {x.q, x.k, x.v};
    if (of.requires_grad()) leaves.push_back(of);
    return results(y, leaves, grad);
  };
  c.check = [=] {
    return against_definition([&](Backend backend) { return package(learned, backend); }, type);
  };
  c.contenders = {{"attentive", [=] { return package(learned, Backend::Auto); }},
                  {"attentive, fixed", [=] { return package(fixed, Backend::Auto); }}};
  runner.run(c);
}

void weights(Runner& runner, const Shape& shape, at::ScalarType type) {
  Case c{"learned", fmt::format("weights and output, full T={}", token_count(shape.T)), type_name(type),
         limit_of(type), kWithBackward * attention_flops(shape, false)};
  if (!runner.wants(c)) return;
  const auto x = make_qkv(shape, type, /*gradients=*/true);
  const auto grad = at::randn_like(x.q);
  const auto of_weights = at::randn({shape.B, shape.H, shape.T, shape.T}).to(type);
  const auto package = [=](Backend backend) {
    const auto result =
        attentive::attention(x.q, x.k, x.v, {.backend = backend}, AttentionExtras{.weights = Weights::Clean});
    auto all = torch::autograd::grad({result.output, result.weights}, {x.q, x.k, x.v}, {grad, of_weights});
    all.push_back(result.output);
    all.push_back(result.weights);
    return all;
  };
  c.check = [=] { return against_definition(package, type); };
  c.contenders = {{"attentive", [=] { return package(Backend::Auto); }},
                  {"composed definition", [=] { return package(Backend::Reference); }}};
  runner.run(c);
}

}  // namespace

void learned_suite(Runner& runner) {
  for (const auto type : kTypes) {
    if (!runner.wants(type)) continue;
    for (const bool causal : {true, false}) {
      for (const int64_t T : {1024, 4096}) bias(runner, {1, 12, T, 64}, type, causal);
      bias(runner, {8, 12, 512, 64}, type, causal);
    }
    slopes(runner, {1, 12, 1024, 64}, type);
    weights(runner, {1, 12, 512, 64}, type);
  }
}

}  // namespace bench
