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

/// AdamW whose moments are shared out over the processes of a group (ZeRO, stage 1).
///
/// The parameters of a dtype are laid end to end and cut into as many shares as there are processes, at
/// multiples of 64 elements of a parameter or at its end. A process keeps the moments of its share and
/// updates it; then the processes exchange what they have updated. Given the same gradients in all
/// processes, as `GradientAverage` leaves them, every process has the parameters of `AdamW`, in every bit.
///
/// All processes make the same calls with the same `options`; `step` and `state` wait for each other. A
/// process whose gradients are refused throws alone: the others learn of it from the group when it ends.
///
/// `state` gathers that of `AdamW`, under the same names, with the same shapes and bits, in every process
/// that wants it; a copy, if there are several processes. A file of one is a file of the other, at any number
/// of processes. `load_state` takes its share from it.
///
/// With one process it is `AdamW`. A parameter that is not contiguous is updated where it lies, in the order
/// of memory. `step` may leave the gradients of its own share scaled as `clip` asked: drop them after it.
///
/// Memory: two tensors of this share's size. `step` adds at most 4 MiB and what `gather` returns for them,
/// `state`, where it is wanted, two tensors of each parameter's shape.
/// Source: Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models",
/// section 5.1.
///
///   attentive::ShardedAdamW optimizer(*model, group, {.learning_rate = 3e-4});
///   parallel.backward(loss);
///   optimizer.clip(1.0); optimizer.step(); optimizer.zero_grad();
class ShardedAdamW final : public AdamWBase {
 public:
  /// Collective. Throws what `AdamW` throws, and c10::ValueError without a group, and in all processes if
  /// their parameters (names, shapes, strides, dtypes) or options differ.
  ShardedAdamW(const torch::nn::Module& module, std::shared_ptr<TrainingGroup> group,
               AdamWOptions options = {});

  /// One update; collective. If another process is missing, its share is not updated here.
  void step() override;

 private:
  // What each process keeps of the parameters of one dtype, by rank.
  struct Shares {
    at::ScalarType dtype;
    std::vector<std::vector<Stretch>> of;
    int64_t longest;  // elements
  };
  void check_same() const;
  Shares shares_of(at::ScalarType dtype) const;
  StateDict state_if(bool wanted) const override;
  void exchange(const std::vector<at::Tensor>& own, const std::vector<at::Tensor>& into) const;

  std::shared_ptr<TrainingGroup> group_;
  std::vector<Shares> shares_;  // of every dtype
};

}  // namespace attentive
