#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <attentive/train/training_group.h>

namespace attentive {

/// Computes the mean loss of a batch: inputs and targets, both (B, T) int64 -> a scalar with a gradient.
using BatchLoss = std::function<at::Tensor(const at::Tensor& x, const at::Tensor& y)>;

struct EvaluateOptions {
  int64_t block = 64;
  int64_t batch = 12;
  at::Device device = at::kCPU;
  std::shared_ptr<TrainingGroup> group = nullptr;  ///< processes that share the batches; null: only this one
};

/// The mean loss over a whole text; every token except the first is predicted exactly once.
///
///   tokens (N) integers on the CPU, N >= 2 -> nats per token
///
/// The text is cut into blocks without overlap, of which the last may be shorter; a token attends only to its
/// own block. During the call, the module is in evaluation mode, and gradients are disabled.
///
/// In a group, batch i is computed by rank i mod W, and the losses are summed in the order of the batches, so
/// every process returns the same bits as a single process. All must call it, with equal models, tokens and
/// options.
/// Throws c10::ValueError if there are fewer than two tokens, if there is no loss function, or if it does not
/// return a single number.
/// Memory: one batch of the model.
///
///   double loss = attentive::evaluate(*model, loss_of_batch, validation, {.block = 64, .batch = 12});
double evaluate(torch::nn::Module& module, const BatchLoss& loss, const at::Tensor& tokens,
                const EvaluateOptions& options = {});

}  // namespace attentive
