#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

namespace attentive {

struct BlockSamplerOptions {
  int64_t block = 64;  ///< tokens per row
  int64_t batch = 12;  ///< rows of a batch, of all processes together
  uint64_t seed = 0;
  int64_t rank = 0;        ///< which of the processes that share the rows of every batch this is
  int64_t world_size = 1;  ///< how many there are; a divisor of batch
};

/// Draws random blocks of a token stream: batches of inputs and of the tokens that follow them.
///
/// It has its own CPU generator, so no other random draws affect it. The starts are drawn by
/// `torch.randint(len(tokens) - block, (batch,), generator=g)`, so a Python program with the same seed draws
/// the same rows. Processes that share batches draw the starts of all rows: their generators and positions
/// stay the same as those of one process, whether each takes its part of the rows (`rank`, `world_size`) or
/// whole batches in turn (`skip`).
/// Memory: one batch.
///
///   attentive::BlockSampler sampler(tokens, {.block = 64, .batch = 12, .seed = 1337});
///   auto [x, y] = sampler.next();  // (12, 64) each, int64, y shifted by one token
class BlockSampler {
 public:
  /// tokens: (N) integers on the CPU. Throws c10::ValueError if there are not more than `block` of them, or
  /// if block, batch, rank or world_size is invalid.
  BlockSampler(at::Tensor tokens, BlockSamplerOptions options);

  /// The next batch, or this process' rows of it: inputs and targets, (batch / world_size, block) each.
  std::pair<at::Tensor, at::Tensor> next();
  /// Passes over batches that other processes take. Throws c10::ValueError for a negative number.
  void skip(int64_t batches);

  /// The number of batches drawn so far, including those that were passed over.
  int64_t position() const { return position_; }
  /// The generator's state, a uint8 tensor. Together with `position` it is the complete state of the sampler.
  at::Tensor state() const;
  /// Returns to a saved position. Throws c10::ValueError if the state is not that of a CPU generator.
  void restore(int64_t position, const at::Tensor& state);
  /// Throws what `restore` would throw.
  void check(int64_t position, const at::Tensor& state) const;

  const BlockSamplerOptions& options() const { return options_; }

 private:
  at::Tensor draw();  // the starts of the next batch, all rows

  BlockSamplerOptions options_;
  at::Tensor windows_;  // (N - block, block + 1), a view: every block with its next token
  at::Generator generator_;
  int64_t position_ = 0;
};

}  // namespace attentive
