// The chapter-3 module, forward and training step, compared with several ways to write it with PyTorch.

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <attentive/core/options.h>
#include <attentive/modules/multi_head_attention.h>

#include "inputs.h"
#include "peer_modules.h"
#include "suites.h"

namespace bench {
namespace {

constexpr int64_t kBatch = 8, kModuleWidth = 768, kModuleHeads = 12;

double linear_flops(int64_t tokens) {
  return 4 * 2.0 * kBatch * static_cast<double>(tokens * kModuleWidth * kModuleWidth);
}

// A training step: returns the output, and the gradients of x and of every weight.
std::function<Tensors()> step(std::function<at::Tensor(const at::Tensor&)> forward, at::Tensor x,
                              std::vector<at::Tensor> parameters, at::Tensor grad) {
  parameters.insert(parameters.begin(), x);
  return [=] {
    const auto y = forward(x);
    auto results = torch::autograd::grad({y}, parameters, {grad});
    results.insert(results.begin(), y);
    return results;
  };
}

Check same_drops(const std::function<Tensors()>& train, at::ScalarType type) {
  const attentive::DropoutStreamGuard stream(attentive::DropoutStream::Counter);
  Tensors results[2];
  for (const auto backend : {attentive::Backend::Native, attentive::Backend::Reference}) {
    const attentive::BackendGuard guard(backend);
    at::manual_seed(5);
    results[backend == attentive::Backend::Reference] = train();
  }
  return {"composed definition, same drops", difference(results[0], results[1]), allowed_error(type)};
}

void add_module(Runner& runner, at::ScalarType type, int64_t tokens, bool training, double dropout) {
  Case c{"module",
         (training ? fmt::format("training step, dropout {}", dropout) : std::string("forward")) +
             (tokens == 1024 ? std::string() : fmt::format(", T={}", tokens)),
         type_name(type), limit_of(type),
         (training ? 3 : 1) * linear_flops(tokens) +
             (training ? kWithBackward : 1) * attention_flops({kBatch, kModuleHeads, tokens, 64}, true)};
  if (!runner.wants(c)) return;
  at::manual_seed(1);
  attentive::MultiHeadAttention module(kModuleWidth, kModuleWidth, tokens, dropout, kModuleHeads);
  const auto device = runner.settings().device;
  module->to(device, type);
  module->train(training);
  const PeerModules peers(module, tokens, training ? dropout : 0.0);
  const auto x = at::randn({kBatch, tokens, kModuleWidth}).to(device, type).requires_grad_(training);
  const auto grad = at::randn({kBatch, tokens, kModuleWidth}).to(device, type);
  const auto way = [&](const std::string& name, std::function<at::Tensor(const at::Tensor&)> forward,
                       const std::vector<at::Tensor>& parameters) {
    if (training) {
      c.contenders.push_back({name, step(std::move(forward), x, parameters, grad)});
    } else {
      c.contenders.push_back({name, [=] {
                                const at::NoGradGuard no_grad;
                                return Tensors{forward(x)};
                              }});
    }
  };
  way(
      "attentive", [module](const at::Tensor& in) mutable { return module->forward(in); }, peers.weights);
  way(
      "chapter-3 code", [peers](const at::Tensor& in) { return peers.notebook(in); }, peers.weights);
  way(
      "linear + torch sdpa", [peers](const at::Tensor& in) { return peers.fused(in); }, peers.weights);
  way(
      "nn::MultiheadAttention", [peers](const at::Tensor& in) { return peers.library(in); },
      peers.library_weights());
  if (training) {
    const auto train = c.contenders[0].run, expected = c.contenders[1].run;
    c.check = [=] {
      if (dropout > 0) return same_drops(train, type);
      return Check{"chapter-3 code", difference(train(), expected()), allowed_error(type)};
    };
  }
  runner.run(c);
}

}  // namespace

void module_suite(Runner& runner) {
  for (const auto type : kTypes) {
    if (!runner.wants(type)) continue;
    add_module(runner, type, /*tokens=*/1024, /*training=*/false, 0.0);
    for (const int64_t tokens : {1024, 256}) {
      for (const double dropout : {0.0, 0.1}) add_module(runner, type, tokens, /*training=*/true, dropout);
    }
  }
}

}  // namespace bench
