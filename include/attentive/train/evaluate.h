#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <attentive/train/training_group.h>

namespace attentive {

struct BlockSamplerOptions {
  int64_t block = 64;  ///< tokens per row
  int64_t batch = 12;  ///< rows per batch, of all processes together
  uint64_t seed = 0;
  int64_t rank = 0;        ///< this process's rank among those that share the rows of every batch
  int64_t world_size = 1;  ///< the number of these processes; a divisor of batch
};

/// Draws random blocks of a token stream: batches of inputs and of their targets, the tokens that follow.
///
/// It has its own CPU generator, so other random draws do not affect it. The starts are drawn by
/// `torch.randint(len(tokens) - block, (batch,), generator=g)`, so a Python program with the same seed draws
/// the same rows. Processes that share batches all draw the starts of all rows, whether each takes its part
/// of the rows (`rank`, `world_size`) or whole batches in turn (`skip`); their generators and positions stay
/// equal to those of a single process.
/// Memory: one batch.
///
///   attentive::BlockSampler sampler(tokens, {.block = 64, .batch = 12, .seed = 1337});
///   auto [x, y] = sampler.next();  // (12, 64) each, int64, y shifted by one token
class BlockSampler {
 public:
  /// tokens: (N) integers on the CPU. Throws c10::ValueError if there are not more than `block` of them, or
  /// if block, batch, rank or world_size is invalid.
  BlockSampler(at::Tensor tokens, BlockSamplerOptions options);

  /// Draws the next batch and returns this process's rows of it: inputs and targets, (batch / world_size,
  /// block) each.
  std::pair<at::Tensor, at::Tensor> next();
  /// Skips batches that other processes take. Throws c10::ValueError for a negative number.
  void skip(int64_t batches);

  /// The number of batches drawn so far, including skipped ones.
  int64_t position() const { return position_; }
  /// The generator's state, a uint8 tensor. Together with `position` it is the complete state of the sampler.
  at::Tensor state() const;
  /// Returns to a saved position. Throws c10::ValueError if the state is not that of a CPU generator.
  void restore(int64_t position, const at::Tensor& state);
  /// Throws the errors that `restore` would throw.
  void check(int64_t position, const at::Tensor& state) const;

  const BlockSamplerOptions& options() const { return options_; }

 private:
  at::Tensor draw();  // starts of the next batch, all rows

  BlockSamplerOptions options_;
  at::Tensor windows_;  // a view (N - block, block + 1): every block with its next token
  at::Generator generator_;
  int64_t position_ = 0;
};

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
