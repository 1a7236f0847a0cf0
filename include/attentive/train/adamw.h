#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <attentive/io/state_dict.h>

namespace attentive {

/// The parameters of a module in two groups: matrices (rank 2 and higher), which weight decay shrinks, and
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
  double weight_decay = 0.1;  ///< of the matrices only
};

/// AdamW (decoupled weight decay) over a module's parameters, using PyTorch's fused CPU and CUDA kernels.
///
/// A parameter without a gradient is left unchanged, including its moments, as in PyTorch; all parameters
/// share one step count. Construct the optimizer after `to(device, dtype)`.
/// Memory: two tensors of each parameter's shape and dtype.
/// Source: Loshchilov and Hutter 2019, "Decoupled Weight Decay Regularization", algorithm 2.
///
///   attentive::AdamW optimizer(*model, {.learning_rate = 3e-4});
///   loss.backward();
///   optimizer.clip(1.0); optimizer.step(); optimizer.zero_grad();
class AdamW {
 public:
  /// Throws c10::ValueError for a module without trainable parameters or for an invalid option, and
  /// c10::TypeError for parameters that are not floating-point.
  explicit AdamW(const torch::nn::Module& module, AdamWOptions options = {});

  /// Drops the gradients.
  void zero_grad();
  /// Makes the next `step` use gradients scaled to a joint 2-norm of at most max_norm (0: no limit) and
  /// returns the norm of the gradients as they are. The scaling happens in that step, not here. Throws
  /// c10::ValueError for a negative or NaN max_norm, and for a gradient that `step` would refuse.
  at::Tensor clip(double max_norm);
  /// One update with `options.learning_rate`. Throws c10::ValueError, before any parameter changes, for a
  /// sparse gradient, for a gradient that does not match its parameter, and for a parameter whose dtype or
  /// device has changed since construction.
  void step();

  /// The moments by name ("exp_avg.<parameter>", "exp_avg_sq.<parameter>") and "step", sharing memory with
  /// the optimizer.
  StateDict state() const;
  /// Copies such a state back. Throws c10::ValueError naming what is missing, unexpected or misshapen, and
  /// then changes nothing.
  void load_state(const StateDict& state);
  /// Throws what `load_state` would throw.
  void check_state(const StateDict& state) const;

  int64_t steps() const;
  AdamWOptions options;

 private:
  struct Group {
    bool decays;
    std::vector<std::string> names;
    std::vector<at::Tensor> parameters, exp_avgs, exp_avg_sqs;
  };

  void check_gradients() const;
  void step_group(const Group& group);

  std::vector<Group> groups_;
  at::Tensor step_;
  at::Tensor scale_;  // what the next step divides the gradients by; undefined: nothing
};

}  // namespace attentive
