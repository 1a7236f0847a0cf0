#pragma once

// The smallest language model: a table of logits by token, with dropout so that the random state matters.

#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/randn.h>
#include <torch/nn/module.h>

#include <attentive/train/trainer.h>

#include "support/compare.h"

namespace attentive::test {

// A text of 15 characters.
inline constexpr const char* kText = "the cat sat on the mat. the dog sat on the log. ";

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

// One model for each thread of a group, without dropout. They are made in one thread, because initial weights
// come from a global generator. All have different weights, so rank 0's must reach the others.
inline std::vector<std::shared_ptr<Bigram>> models_of_ranks(int64_t count) {
  std::vector<std::shared_ptr<Bigram>> models;
  for (int64_t rank = 0; rank < count; ++rank) {
    at::manual_seed(3 + static_cast<uint64_t>(rank));
    models.push_back(std::make_shared<Bigram>(7, /*dropout=*/0.0));
  }
  return models;
}

// The squares modulo 7: 0, 1, 4, 2, 2, 4, 1, ...
inline at::Tensor squares(int64_t count) {
  const auto i = at::arange(count);
  return (i * i).remainder(7);
}

inline TrainerOptions small() {
  TrainerOptions options;
  options.steps = 30;
  options.block = 8;
  options.batch = 4;
  options.warmup = 5;
  options.learning_rate = 0.05;
  options.min_learning_rate = 0.01;
  options.evaluate_every = 10;
  options.save_every = 10;
  options.log_every = 1;
  return options;
}

struct Run {
  explicit Run(TrainerOptions options = small())
      : model(make_bigram()), trainer(model, loss_of(model), squares(200), squares(60), options) {}
  std::shared_ptr<Bigram> model;
  Trainer trainer;
};

// Copies the tensors, because those of a trainer's checkpoint change when training continues.
inline Checkpoint copy_of(Checkpoint checkpoint) {
  for (auto* state : {&checkpoint.model, &checkpoint.optimizer}) {
    for (auto& [name, tensor] : *state) tensor = tensor.clone();
  }
  return checkpoint;
}

inline bool equal_tensors(const StateDict& x, const StateDict& y) {
  if (x.size() != y.size()) return false;
  for (const auto& [name, tensor] : x) {
    if (!y.contains(name) || !bit_equal(tensor, y.at(name))) return false;
  }
  return true;
}

// Whether both are of the same step and have bit-identical tensors; the documents may differ.
inline bool equally_trained(const Checkpoint& a, const Checkpoint& b) {
  return a.step == b.step && equal_tensors(a.model, b.model) && equal_tensors(a.optimizer, b.optimizer);
}

inline bool equal(const Checkpoint& a, const Checkpoint& b) {
  return equally_trained(a, b) && a.documents == b.documents;
}

}  // namespace attentive::test
