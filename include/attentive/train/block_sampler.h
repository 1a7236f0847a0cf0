#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

namespace attentive {

struct BlockSamplerOptions {
  int64_t block = 64;  ///< tokens per row
  int64_t batch = 12;  ///< rows for this process
  uint64_t seed = 0;
  int64_t rank = 0;  ///< which of the world_size processes that train together this is
  int64_t world_size = 1;
};

/// Draws random blocks of a token stream: batches of inputs and of the tokens that follow them.
///
/// It has its own CPU generator, so no other random draws affect it. Every process draws the rows of all
/// processes and takes those of its rank: all rows together depend only on the seed, and one process with
/// batch = 2 b sees the same rows as two with batch = b. The starts are drawn by `torch.randint(len(tokens) -
/// block, (batch,), generator=g)`, so a Python program with the same seed draws the same rows.
/// Memory: one batch.
///
///   attentive::BlockSampler sampler(tokens, {.block = 64, .batch = 12, .seed = 1337});
///   auto [x, y] = sampler.next();  // (12, 64) each, int64, y shifted by one token
class BlockSampler {
 public:
  /// tokens: (N) integers on the CPU. Throws c10::ValueError if there are not more than `block` of them, or
  /// if block, batch, rank or world_size is invalid.
  BlockSampler(at::Tensor tokens, BlockSamplerOptions options);

  std::pair<at::Tensor, at::Tensor> next();

  /// The number of batches drawn so far.
  int64_t position() const { return position_; }
  /// The generator's state, a uint8 tensor. Together with `position` it is the complete state of the sampler.
  at::Tensor state() const;
  /// Returns to a saved position. Throws c10::ValueError if the state is not that of a CPU generator.
  void restore(int64_t position, const at::Tensor& state);
  /// Throws what `restore` would throw.
  void check(int64_t position, const at::Tensor& state) const;

  const BlockSamplerOptions& options() const { return options_; }

 private:
  BlockSamplerOptions options_;
  at::Tensor windows_;  // (N - block, block + 1), a view: every block with its next token
  at::Generator generator_;
  int64_t position_ = 0;
};

}  // namespace attentive
