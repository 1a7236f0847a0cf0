#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <attentive/train/training_group.h>

namespace attentive {

/// The mean loss of a batch: inputs and targets, both (B, T) int64, to a scalar with a gradient.
using BatchLoss = std::function<at::Tensor(const at::Tensor& x, const at::Tensor& y)>;

struct EvaluateOptions {
  int64_t block = 64;
  int64_t batch = 12;
  at::Device device = at::kCPU;
  std::shared_ptr<TrainingGroup> group = nullptr;  ///< processes that share the batches; null: this one alone
};

/// The mean loss over a whole text: every token but the first is predicted exactly once.
///
///   tokens (N) integers on the CPU, N >= 2 -> nats per token
///
/// The text is cut into blocks that do not overlap, the last of which may be shorter, so a token sees at most
/// its own block. Meanwhile the module is in evaluation mode, and gradients are disabled.
///
/// In a group, batch i is computed by rank i mod W, and the losses are summed in the order of the batches:
/// every process returns the bits that one process would. All must call it, with equal models, tokens and
/// options.
/// Throws c10::ValueError if there are fewer than two tokens, if there is no loss function, or if it does not
/// return a single number.
/// Memory: one batch of the model.
///
///   double loss = attentive::evaluate(*model, loss_of_batch, validation, {.block = 64, .batch = 12});
double evaluate(torch::nn::Module& module, const BatchLoss& loss, const at::Tensor& tokens,
                const EvaluateOptions& options = {});

}  // namespace attentive
