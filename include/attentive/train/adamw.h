#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <attentive/files/state_dict.h>
#include <attentive/train/training_group.h>

namespace attentive {

/// The parameters of a module in two groups: matrices (rank 2 and higher), to which weight decay applies, and
/// all others (biases, norms). A parameter with two names (tied weights) is listed once, under its first
/// name; parameters that do not require gradients are left out.
struct DecayGroups {
  std::vector<std::string> decayed_names, plain_names;
  std::vector<at::Tensor> decayed, plain;
};

///   auto groups = attentive::decay_groups(*model);  // also usable with torch::optim::AdamW's groups
DecayGroups decay_groups(const torch::nn::Module& module);

struct AdamWOptions {
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.99;
  double eps = 1e-8;
  double weight_decay = 0.1;  ///< applies to matrices only
};

/// The common base of `AdamW` and `ShardedAdamW`, which differ in the moments that this process keeps.
class AdamWBase {
 public:
  virtual ~AdamWBase() = default;

  /// Resets the gradients to undefined, and forgets how `clip` would have scaled them.
  void zero_grad();
  /// Makes the next `step` scale the gradients so that their joint 2-norm is at most max_norm (0: no limit),
  /// and returns the norm before that. The scaling happens in that step, not here.
  /// loss_scale: the factor by which the loss was multiplied, as by a `LossScaler`. The norm is that of the
  /// gradients divided by it, and the next step divides by it too, in the same pass over the gradients. It is
  /// float32, and summed in that dtype at least: the norm of float16 gradients may exceed their range.
  /// Memory: on the CPU, one gradient of a half type at a time in float32.
  /// Throws c10::ValueError for a negative or NaN max_norm, for a loss_scale that is not a positive number
  /// of float32, and for a gradient that `step` would refuse.
  at::Tensor clip(double max_norm, double loss_scale = 1.0);
  /// Does one update with `options.learning_rate`. Throws c10::ValueError, before any parameter changes, for
  /// a sparse gradient, for a gradient that does not match its parameter, and for a parameter whose dtype,
  /// device, shape or strides have changed since construction.
  virtual void step();

  /// The moments by name ("exp_avg.<parameter>", "exp_avg_sq.<parameter>") and "step", sharing memory with
  /// the optimizer. wanted: false if this process only takes part in the collective call; it then gets an
  /// empty state.
  StateDict state(bool wanted = true) const;
  /// Copies a state back that `state` returned. Throws c10::ValueError naming what is missing, unexpected or
  /// misshapen, and then changes nothing.
  void load_state(const StateDict& state);
  /// Throws the errors that `load_state` would throw.
  void check_state(const StateDict& state) const;

  int64_t steps() const;
  AdamWOptions options;

 protected:
  // A parameter, with its properties when the optimizer was built.
  struct Parameter {
    std::string name;
    at::Tensor tensor;
    bool decays;
    at::Tensor like;  // has its shape, dtype and device, but no values
    std::vector<int64_t> strides;
  };
  // Some elements of a parameter, in memory order.
  struct Stretch {
    size_t parameter;
    int64_t begin, end;
  };
  // A stretch that this process updates, with its moments. The moments of a whole parameter have its shape.
  struct Piece : Stretch {
    at::Tensor exp_avg, exp_avg_sq;
  };
  struct Moment {
    const char* prefix;
    at::Tensor Piece::*member;
  };
  static constexpr std::array<Moment, 2> kMoments{
      {{"exp_avg.", &Piece::exp_avg}, {"exp_avg_sq.", &Piece::exp_avg_sq}}};

  AdamWBase(const char* caller, const torch::nn::Module& module, AdamWOptions options);
  AdamWBase(const AdamWBase&) = default;
  AdamWBase(AdamWBase&&) = default;
  AdamWBase& operator=(const AdamWBase&) = default;
  AdamWBase& operator=(AdamWBase&&) = default;

  virtual StateDict state_if(bool wanted) const;
  // One stretch for each parameter.
  std::vector<Stretch> whole_parameters() const;
  // Makes the moments of these stretches, which become pieces of this process.
  void keep(const std::vector<Stretch>& stretches);
  // The part of a tensor with the parameter's shape and strides; the tensor itself if the stretch covers it.
  static at::Tensor part_of(const at::Tensor& tensor, const Stretch& stretch);

  const char* caller_;
  std::vector<Parameter> parameters_;  // decaying ones first
  std::vector<Piece> pieces_;
  at::Tensor step_;

 private:
  void check_options() const;
  void check_gradients() const;
  void check_gradient(const Parameter& parameter) const;
  void update(bool decays);

  // Set by clip() and used by the next step(), which divides the gradients by it; undefined: 1.
  at::Tensor scale_;
};

/// AdamW (decoupled weight decay) for a module's parameters, using PyTorch's fused CPU and CUDA kernels.
///
/// A parameter without a gradient is left unchanged, including its moments, as in PyTorch; all parameters
/// share one step count. Construct the optimizer after `to(device, dtype)`.
/// Memory: two tensors of each parameter's shape and dtype; `ShardedAdamW` distributes them over processes.
/// Source: Loshchilov and Hutter 2019, "Decoupled Weight Decay Regularization", algorithm 2.
///
///   attentive::AdamW optimizer(*model, {.learning_rate = 3e-4});
///   loss.backward();
///   optimizer.clip(1.0); optimizer.step(); optimizer.zero_grad();
class AdamW : public AdamWBase {
 public:
  /// Throws c10::ValueError for a module without trainable parameters or for an invalid option, and
  /// c10::TypeError for parameters that are not floating-point, or not dense (such as a part of a larger
  /// tensor).
  explicit AdamW(const torch::nn::Module& module, AdamWOptions options = {});
};

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

/// The learning rate by step: a linear warm-up to `peak`, followed by half a cosine down to `floor`.
///
///   step < warmup:  peak * (step + 1) / (warmup + 1)
///   step >= total:  floor
///   between:        floor + (peak - floor) * (1 + cos(pi * (step - warmup) / (total - warmup))) / 2
///
///   attentive::CosineSchedule schedule{.peak = 1e-3, .floor = 1e-4, .warmup = 100, .total = 2000};
///   optimizer.options.learning_rate = schedule.at(step);
struct CosineSchedule {
  double peak = 1e-3;
  double floor = 0.0;
  int64_t warmup = 0;
  int64_t total = 0;

  /// The learning rate of a step, counted from 0. Throws c10::ValueError for invalid settings: a negative or
  /// non-finite rate, a floor above the peak, or a negative count.
  double at(int64_t step) const;
};

}  // namespace attentive
