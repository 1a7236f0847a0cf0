#pragma once

// The smallest language model: a table of logits by token, with dropout so that the random state matters.

#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/randn.h>
#include <torch/nn/module.h>

#include <attentive/train/trainer.h>

namespace attentive::test {

struct Bigram : torch::nn::Module {
  explicit Bigram(int64_t vocab, double dropout = 0.25) : p(dropout) {
    table = register_parameter("table", at::randn({vocab, vocab}));
    bias = register_parameter("bias", at::randn({vocab}));
  }
  at::Tensor forward(const at::Tensor& ids) {
    return at::dropout(at::embedding(table, ids), p, is_training()) + bias;
  }
  at::Tensor loss(const at::Tensor& x, const at::Tensor& y) {
    return at::cross_entropy_loss(forward(x).flatten(0, 1), y.flatten());
  }
  double p;
  at::Tensor table, bias;
};

inline std::shared_ptr<Bigram> make_bigram(int64_t vocab = 7) {
  at::manual_seed(3);
  return std::make_shared<Bigram>(vocab);
}

inline BatchLoss loss_of(const std::shared_ptr<Bigram>& model) {
  return [model](const at::Tensor& x, const at::Tensor& y) { return model->loss(x, y); };
}

// 0, 1, 4, 2, 2, 4, 1, ...: the squares modulo 7
inline at::Tensor squares(int64_t count) {
  const auto i = at::arange(count);
  return (i * i).remainder(7);
}

}  // namespace attentive::test
