#pragma once

// The blocks of a model one after the other, with their activations kept or computed again.

#include <algorithm>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <torch/nn/modules/container/modulelist.h>

#include <attentive/functional/activation_checkpoint.h>

namespace attentive {

/// Calls call(block, x) for each `Block` in turn. With every > 0 and gradients, groups of `every` blocks keep
/// only their input (`activation_checkpoint`). `call` is copied, and must hold what it uses.
template <class Block, class Call>
at::Tensor run_blocks(const torch::nn::ModuleListImpl& blocks, at::Tensor x, int64_t every,
                      const Call& call) {
  const auto count = static_cast<int64_t>(blocks.size());
  const bool checkpoints = every > 0 && at::GradMode::is_enabled();
  const auto step = checkpoints ? every : 1;
  for (int64_t first = 0; first < count; first += step) {
    std::vector<std::shared_ptr<torch::nn::Module>> group;
    for (int64_t i = first; i < std::min(count, first + step); ++i)
      group.push_back(blocks.ptr(static_cast<size_t>(i)));
    const auto run = [group, call](at::Tensor y) {
      for (const auto& block : group) y = call(*block->template as<Block>(), y);
      return y;
    };
    x = checkpoints ? activation_checkpoint(run, x, {.modules = group}) : run(x);
  }
  return x;
}

}  // namespace attentive
