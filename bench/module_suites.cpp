// The suites of the chapter-3 module.

#include <cmath>
#include <limits>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/Tensor.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/activation.h>

#include <attentive/core/options.h>
#include <attentive/modules/multi_head_attention.h>

#include "suites.h"
#include "support/machine.h"

namespace bench {

/// The chapter-3 module as PyTorch's users write it, with the weights of an attentive module: by single
/// operations, with PyTorch's fused function, and as `torch::nn::MultiheadAttention`.
class PeerModules {
 public:
  /// Dropout on the attention weights is applied whenever `dropout` is positive.
  PeerModules(const attentive::MultiHeadAttention& module, int64_t context_length, double dropout);

  at::Tensor notebook(const at::Tensor& x) const;
  at::Tensor fused(const at::Tensor& x) const;
  at::Tensor library(const at::Tensor& x) const;

  std::vector<at::Tensor> weights;  ///< W_query, W_key, W_value, out_proj weight and bias
  std::vector<at::Tensor> library_weights() const { return library_->parameters(); }

 private:
  at::Tensor heads(const at::Tensor& x, std::size_t which) const;
  at::Tensor merge(const at::Tensor& context) const;

  int64_t num_heads_;
  double dropout_;
  at::Tensor hidden_;  ///< (context_length, context_length), true above the diagonal
  mutable torch::nn::MultiheadAttention library_;
};

PeerModules::PeerModules(const attentive::MultiHeadAttention& module, int64_t context_length, double dropout)
    : weights({module->W_query->weight, module->W_key->weight, module->W_value->weight,
               module->out_proj->weight, module->out_proj->bias}),
      num_heads_(module->options.num_heads()),
      dropout_(dropout),
      hidden_(hidden_by(context_length, {}, weights[0].device())),
      library_(torch::nn::MultiheadAttentionOptions(module->options.d_out(), num_heads_).dropout(dropout)) {
  const at::NoGradGuard no_grad;
  library_->to(weights[0].device(), weights[0].scalar_type());
  library_->train(dropout > 0);
  library_->in_proj_weight.copy_(at::cat({weights[0], weights[1], weights[2]}));
  library_->in_proj_bias.zero_();
  library_->out_proj->weight.copy_(weights[3]);
  library_->out_proj->bias.copy_(weights[4]);
}

at::Tensor PeerModules::heads(const at::Tensor& x, std::size_t which) const {
  const auto y = at::linear(x, weights[which]);
  return y.view({y.size(0), y.size(1), num_heads_, -1}).transpose(1, 2);
}

at::Tensor PeerModules::merge(const at::Tensor& context) const {
  const auto y = context.transpose(1, 2);
  return at::linear(y.reshape({y.size(0), y.size(1), -1}), weights[3], weights[4]);
}

at::Tensor PeerModules::notebook(const at::Tensor& x) const {
  const auto T = x.size(1);
  const auto q = heads(x, 0), k = heads(x, 1), v = heads(x, 2);
  auto scores = at::matmul(q, k.transpose(2, 3));
  scores.masked_fill_(hidden_.narrow(0, 0, T).narrow(1, 0, T), -std::numeric_limits<double>::infinity());
  auto attention = at::softmax(scores / std::sqrt(static_cast<double>(k.size(-1))), -1);
  if (dropout_ > 0) attention = at::dropout(attention, dropout_, /*train=*/true);
  return merge(at::matmul(attention, v));
}

at::Tensor PeerModules::fused(const at::Tensor& x) const {
  return merge(at::scaled_dot_product_attention(heads(x, 0), heads(x, 1), heads(x, 2), {}, dropout_,
                                                /*is_causal=*/true));
}

at::Tensor PeerModules::library(const at::Tensor& x) const {
  const auto T = x.size(1);
  const auto y = x.transpose(0, 1);
  const auto [output, none] = library_->forward(y, y, y, /*key_padding_mask=*/{}, /*need_weights=*/false,
                                                hidden_.narrow(0, 0, T).narrow(1, 0, T));
  return output.transpose(0, 1);
}

// The chapter-3 module, forward and training step, compared with several ways to write it with PyTorch.

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

// The overhead of a call: a small module on a few tokens, one thread, inference.

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
