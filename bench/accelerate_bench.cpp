// PyTorch's own attention with this package's kernel behind it, and without: single calls, and a TorchScript
// encoder.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/jit/api/module.h>

#include <attentive/accelerate.h>
#include <attentive/functional/attention.h>

#include "suites.h"

namespace bench {
namespace {

using attentive::SdpaGuard;

/// Settings of one call of the function.
struct SdpaCase {
  Shape shape;
  int64_t key_heads = 0;  ///< 0: as many as queries
  double dropout_p = 0.0;
  bool masked = false;      ///< a bool mask in place of causality
  int64_t shared_keys = 0;  ///< that many keys of one item for all, without causality; 0: each has its own
};

std::string name_of(const SdpaCase& settings, bool backward) {
  const auto& shape = settings.shape;
  auto name = fmt::format("{} B{} H{}", backward ? "fwd+bwd" : "forward", shape.B, shape.H);
  if (settings.key_heads > 0) name += fmt::format("/{}", settings.key_heads);
  name += fmt::format(" T={} D{}", token_count(shape.T), shape.D);
  if (settings.masked) return name + ", bool mask";
  if (settings.shared_keys > 0) return name + fmt::format(", {} keys of batch 1", settings.shared_keys);
  name += ", causal";
  return settings.dropout_p > 0 ? name + fmt::format(", dropout {}", settings.dropout_p) : name;
}

Qkv inputs_of(const SdpaCase& settings, at::ScalarType type, bool backward) {
  auto x = make_qkv(settings.shape, type, backward);
  if (settings.key_heads > 0) {
    for (auto* t : {&x.k, &x.v})
      *t = t->detach().slice(1, 0, settings.key_heads).contiguous().requires_grad_(backward);
  }
  if (settings.shared_keys > 0) {
    const auto one = make_qkv({1, settings.shape.H, settings.shared_keys, settings.shape.D}, type, backward);
    x = {x.q, one.k, one.v};
  }
  return x;
}

// Results as one tensor, since gradients of a single key are zero and have no scale of their own.
Tensors in_one(const Tensors& results) {
  Tensors flat;
  for (const auto& x : results) flat.push_back(x.flatten());
  return {at::cat(flat)};
}

void call(Runner& runner, const SdpaCase& settings, at::ScalarType type, bool backward) {
  const auto& shape = settings.shape;
  const bool causal = !settings.masked && settings.shared_keys == 0;
  const double wider = settings.shared_keys > 0
                           ? static_cast<double>(settings.shared_keys) / static_cast<double>(shape.T)
                           : 1.0;
  Case c{"accelerate", name_of(settings, backward), type_name(type), limit_of(type),
         (backward ? kWithBackward : 1.0) * wider * attention_flops(shape, causal)};
  if (!runner.wants(c)) return;
  const auto x = inputs_of(settings, type, backward);
  const auto grad = at::randn_like(x.q.detach());
  at::manual_seed(3);
  const auto mask = settings.masked ? at::rand({shape.T, shape.T}).gt(0.1) : at::Tensor();
  const auto theirs = [=] {
    const auto given = settings.masked ? std::make_optional(mask) : std::nullopt;
    return at::scaled_dot_product_attention(x.q, x.k, x.v, given, settings.dropout_p, causal, std::nullopt,
                                            settings.key_heads > 0);
  };
  const auto ours = [=] {
    const auto order = causal ? attentive::Causal::TopLeft : attentive::Causal::None;
    const auto of_every_item = [&](const at::Tensor& t) { return t.expand({shape.B, -1, -1, -1}); };
    return attentive::attention(x.q, of_every_item(x.k), of_every_item(x.v),
                                {.causal = order, .dropout_p = settings.dropout_p},
                                settings.masked ? attentive::Mask::keep(mask) : attentive::Mask());
  };
  const auto run = [&](std::function<at::Tensor()> forward) -> std::function<Tensors()> {
    if (backward) return with_backward(x, grad, std::move(forward));
    return [forward = std::move(forward)] {
      const at::NoGradGuard no_grad;
      return Tensors{forward()};
    };
  };
  const auto plain = run(theirs), own = run(ours);
  const auto accelerated = [plain] {
    const SdpaGuard guard;
    return plain();
  };
  c.contenders = {{"accelerated", accelerated}, {"torch sdpa", plain}, {"attentive::attention", own}};
  const bool drops = settings.dropout_p > 0;  // then PyTorch draws other numbers
  c.check = [=] {
    at::manual_seed(5);
    const auto got = accelerated();
    at::manual_seed(5);
    const double allowed = drops ? 1e-6 : type == at::kFloat ? 1e-4 : 3e-2;
    return Check{drops ? "attentive::attention" : "torch sdpa",
                 difference(in_one(got), in_one(drops ? own() : plain())), allowed};
  };
  runner.run(c);
}

// ---- An encoder as a TorchScript file holds it: six layers of 512 with eight heads, normalized first.

constexpr int64_t kLayers = 6, kWidth = 512, kHeads = 8, kTokens = 512, kBatch = 4;

// `attend` is the line that computes y from q, k and v.
torch::jit::Module encoder(const char* attend) {
  at::manual_seed(7);
  torch::jit::Module module("Encoder");
  std::string source = "def forward(self, x, dropout: float):\n";
  const auto parameter = [&](const std::string& name, at::IntArrayRef sizes) {
    const auto numbers = sizes.size() == 1 ? at::zeros(sizes) : at::randn(sizes).mul(0.02);
    module.register_parameter(name, numbers, /*is_buffer=*/false);
  };
  const auto linear = [&](const std::string& name, int64_t in, int64_t out) {
    parameter(name, {out, in});
    parameter(name + "_bias", {out});
  };
  for (int64_t i = 0; i < kLayers; ++i) {
    linear(fmt::format("project{}", i), kWidth, 3 * kWidth);
    linear(fmt::format("out{}", i), kWidth, kWidth);
    linear(fmt::format("up{}", i), kWidth, 4 * kWidth);
    linear(fmt::format("down{}", i), 4 * kWidth, kWidth);
    source += fmt::format(
        "    h = torch.layer_norm(x, [{1}])\n"
        "    q, k, v = torch.linear(h, self.project{0}, self.project{0}_bias)"
        ".unflatten(-1, [3, {2}, {3}]).permute([2, 0, 3, 1, 4]).unbind(0)\n"
        "    y = {4}\n"
        "    x = x + torch.linear(y.transpose(1, 2).flatten(2), self.out{0}, self.out{0}_bias)\n"
        "    h = torch.gelu(torch.linear(torch.layer_norm(x, [{1}]), self.up{0}, self.up{0}_bias))\n"
        "    x = x + torch.linear(h, self.down{0}, self.down{0}_bias)\n",
        i, kWidth, kHeads, kWidth / kHeads, attend);
  }
  module.define(source + "    return x\n");
  return module;
}

void torchscript(Runner& runner, bool training, double dropout_p) {
  Case c{"accelerate",
         fmt::format("TorchScript encoder 6 x 512, T={}, {}", kTokens,
                     training ? fmt::format("training step, dropout {}", dropout_p) : "inference"),
         type_name(at::kFloat)};
  if (!runner.wants(c)) return;
  const auto whole = encoder("torch.scaled_dot_product_attention(q, k, v, None, dropout)");
  const auto without = encoder("v");
  const auto x = at::randn({kBatch, kTokens, kWidth});
  const auto run = [=](torch::jit::Module module) -> std::function<Tensors()> {
    if (!training) {
      return [=]() mutable {
        const at::NoGradGuard no_grad;
        return Tensors{module.forward({x, 0.0}).toTensor()};
      };
    }
    Tensors leaves;
    for (const auto& parameter : module.parameters()) leaves.push_back(parameter.requires_grad_());
    return [=]() mutable {
      const auto y = module.forward({x, dropout_p}).toTensor();
      auto results = torch::autograd::grad({y.square().mean()}, leaves);
      results.insert(results.begin(), y);
      return results;
    };
  };
  const auto plain = run(whole);
  c.contenders = {{"accelerated",
                   [plain] {
                     const SdpaGuard guard;
                     return plain();
                   }},
                  {"torch", plain},
                  {"torch, without attention", run(without)}};
  // With dropout, the results of both differ by their random numbers; their sizes agree.
  if (dropout_p > 0) {
    c.check = [accelerated = c.contenders[0].run, plain] {
      const auto size = [](const Tensors& results) { return results[0].square().mean().sqrt().reshape({1}); };
      return Check{"torch, the size of the output", difference({size(accelerated())}, {size(plain())}), 0.02};
    };
  }
  runner.run(c);
}

}  // namespace

void accelerate_suite(Runner& runner) {
  const Shape usual{1, 12, 1024, 64};
  for (const auto type : kTypes) {
    if (!runner.wants(type)) continue;
    for (const bool backward : {false, true}) {
      call(runner, {usual}, type, backward);
      call(runner, {.shape = usual, .dropout_p = 0.1}, type, backward);
      call(runner, {.shape = {1, 32, 1024, 64}, .key_heads = 8, .masked = true}, type, backward);
      call(runner, {.shape = {5, 20, 448, 64}, .shared_keys = 1500}, type, backward);
      for (const int64_t T : {1, 16, 64}) call(runner, {.shape = {1, 4, T, 32}}, type, backward);
    }
  }
  if (!runner.wants(at::kFloat)) return;
  torchscript(runner, /*training=*/false, 0.0);
  torchscript(runner, /*training=*/true, 0.0);
  torchscript(runner, /*training=*/true, 0.1);
}

}  // namespace bench
