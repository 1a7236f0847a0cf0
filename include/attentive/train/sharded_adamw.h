#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <attentive/files/state_dict.h>
#include <attentive/train/adamw.h>
#include <attentive/train/training_group.h>

namespace attentive {

/// AdamW whose moments are distributed over the processes of a group (ZeRO, stage 1).
///
/// The parameters of each dtype are concatenated and cut into as many shares as there are processes, at
/// multiples of 64 elements of a parameter or at its end. A process keeps the moments of its share and
/// updates it; then the processes exchange the updated values. If all processes have the same gradients, as
/// after `GradientAverage`, every process gets the same parameters as with `AdamW`, bit for bit.
///
/// All processes make the same calls with the same `options`; `step` and `state` wait for each other. A
/// process whose gradients are refused throws alone; the others learn of it from the group when that process
/// ends.
///
/// `state` gathers the state that `AdamW` would have, with the same names, shapes and bits, in every process
/// that wants it; with several processes it is a copy. A file saved with one of the two classes can be loaded
/// with the other, with any number of processes. `load_state` takes this process's share from it.
///
/// With one process, it works like `AdamW`. A parameter that is not contiguous is updated in place, in memory
/// order. `step` may leave the gradients of this process's share scaled as `clip` requested; reset them
/// afterwards.
///
/// Memory: two tensors of this share's size. `step` adds at most 4 MiB and the result of `gather` for them;
/// `state`, where it is wanted, two tensors of each parameter's shape.
/// Source: Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models",
/// section 5.1.
///
///   attentive::ShardedAdamW optimizer(*model, group, {.learning_rate = 3e-4});
///   parallel.backward(loss);
///   optimizer.clip(1.0); optimizer.step(); optimizer.zero_grad();
class ShardedAdamW final : public AdamWBase {
 public:
  /// Collective. Throws the errors of `AdamW`; c10::ValueError without a group; and c10::ValueError in all
  /// processes if their parameters (names, shapes, strides, dtypes) or options differ.
  ShardedAdamW(const torch::nn::Module& module, std::shared_ptr<TrainingGroup> group,
               AdamWOptions options = {});

  /// Does one update; collective. If another process is missing, that process's share is not updated here.
  void step() override;

 private:
  // The stretches that each process keeps, by rank, for the parameters of one dtype.
  struct Shares {
    at::ScalarType dtype;
    std::vector<std::vector<Stretch>> by_rank;
    int64_t longest;  // number of elements in the largest share
  };
  void check_same() const;
  Shares shares_of(at::ScalarType dtype) const;
  StateDict state_if(bool wanted) const override;
  void exchange(const std::vector<at::Tensor>& local, const std::vector<at::Tensor>& into) const;

  std::shared_ptr<TrainingGroup> group_;
  std::vector<Shares> shares_;  // one for each dtype
};

}  // namespace attentive
