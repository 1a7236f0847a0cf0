#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

namespace attentive {

/// Averages the gradients of one model over the processes of a group, while the backward pass runs.
class GradientAverage {
 public:
  virtual ~GradientAverage() = default;
  /// Runs `loss.backward()`. After a call with `last`, every process holds the mean, over all processes, of
  /// the gradients accumulated since the previous such call. Without `last`, nothing is sent.
  virtual void backward(const at::Tensor& loss, bool last) = 0;
};

/// The processes that train one model together.
///
/// This is all that `Trainer` needs to know about them. `attentive::Group` of the component `distributed` is
/// such a group, using LibTorch's c10d. Every process must make the same calls in the same order. A call in
/// which another process is missing throws an error.
class TrainingGroup {
 public:
  virtual ~TrainingGroup() = default;
  /// This process's rank, from 0.
  virtual int64_t rank() const = 0;
  /// The number of processes.
  virtual int64_t size() const = 0;
  /// Returns the tensors of all processes, in the order of their ranks; bit-identical in every process.
  /// tensor: on the CPU or on the model's device, of the same shape and dtype in every process.
  virtual std::vector<at::Tensor> gather(const at::Tensor& tensor) = 0;
  /// Copies the parameters and buffers of rank 0 to the other processes, and prepares the model's gradients
  /// to be averaged. The model must outlive the result.
  virtual std::unique_ptr<GradientAverage> average_gradients(torch::nn::Module& model) = 0;
};

}  // namespace attentive
