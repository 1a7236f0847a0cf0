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
  /// `loss.backward()`. After the call with `last`, every process holds the mean over all processes of the
  /// gradients that it has accumulated since the previous such call. Without `last`, nothing is sent.
  virtual void backward(const at::Tensor& loss, bool last) = 0;
};

/// The processes that train one model together.
///
/// `Trainer` knows no more of them than this. `attentive::Group` of the component `distributed` is such a
/// group, over LibTorch's c10d. Every process must make the same calls in the same order. A call in which
/// another process is missing throws an error that says which one.
class TrainingGroup {
 public:
  virtual ~TrainingGroup() = default;
  /// Which of the processes this is, from 0.
  virtual int64_t rank() const = 0;
  /// How many processes there are.
  virtual int64_t size() const = 0;
  /// The tensors of all processes, in the order of their ranks; the same bits everywhere.
  /// tensor: on the CPU or where the model is, of the same shape and dtype in every process.
  virtual std::vector<at::Tensor> gather(const at::Tensor& tensor) = 0;
  /// Copies the parameters and buffers of rank 0 to the other processes, and prepares the model's gradients
  /// to be averaged. The model must outlive the result.
  virtual std::unique_ptr<GradientAverage> average_gradients(torch::nn::Module& model) = 0;
};

}  // namespace attentive
