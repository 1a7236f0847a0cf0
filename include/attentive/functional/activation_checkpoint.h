#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

namespace torch::nn {
class Module;
}

namespace attentive {

/// A function of tensors that `activation_checkpoint` runs twice.
using CheckpointedFunction = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

/// The options of `activation_checkpoint`.
struct ActivationCheckpointOptions {
  /// Generators from which the function draws, besides the default ones of the CPU and of the inputs' GPUs.
  std::vector<at::Generator> generators = {};
  /// Modules which, with their children, are in training mode in the second run if they were in the first,
  /// even if `train()` or `eval()` is called in between.
  std::vector<std::shared_ptr<torch::nn::Module>> modules = {};
};

/// Calls a function and keeps only its inputs for the backward pass, which calls it again (activation
/// checkpointing). A block of a network then needs memory for its activations only during its own backward
/// pass.
///
///   inputs, outputs: any tensors; those that need no gradient are passed through
///
/// Results and gradients have the bits of `function(inputs)`: the second run starts from the states that the
/// generators had in the first, and has its autocast, preferred backend and dropout stream; afterwards the
/// generators continue as if it had not been. Parameters and other tensors that the function captured get
/// their gradients as if the function had been called directly: they are part of the graph
/// (`torch::autograd::grad` finds them, and so does `DataParallel`), and the gradients of several uses are
/// summed before hooks see them. Calls nest, and the gradients can be differentiated again. Under
/// NoGradGuard, and with tangents of forward mode, it only calls the function.
///
/// Under autocast, a float32 weight that several calls use gets a sum of its gradients in float32; without
/// checkpoints, autocast sums them in its dtype.
///
/// The function must compute the same from the same inputs, and its side effects happen twice. The graph
/// holds what the function captured.
///
/// Throws c10::ValueError without a function; if the function changes an input in place; and in the backward
/// pass, if an input, or a parameter that the function read, was changed in place after the forward pass, or
/// if the second run reads other tensors or returns other outputs than the first. Errors of the function pass
/// through; the generators are then as before the call.
/// Memory: the inputs, and during each run the activations of this function. Time: one more forward pass.
/// Source: Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost".
///
///   auto y = attentive::activation_checkpoint([block](auto& x) { return block.ptr()->forward(x); }, x);
at::Tensor activation_checkpoint(const std::function<at::Tensor(const at::Tensor&)>& function,
                                 const at::Tensor& input, const ActivationCheckpointOptions& options = {});
std::vector<at::Tensor> activation_checkpoint(const CheckpointedFunction& function,
                                              const std::vector<at::Tensor>& inputs,
                                              const ActivationCheckpointOptions& options = {});

}  // namespace attentive
