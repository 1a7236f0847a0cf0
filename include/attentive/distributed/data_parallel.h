#pragma once

#include <cstdint>
#include <memory>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <attentive/distributed/group.h>
#include <attentive/train/training_group.h>

namespace attentive {

struct DataParallelOptions {
  /// Gradients travel in buckets of about this size, in bytes, from the last parameter of the model to the first: a bucket leaves
  /// while the backward pass runs if modules are registered in the order in which they are used. The order is the same in every
  /// step of every run, so that a run that goes on sums as one that never stopped.
  int64_t bucket_bytes = 25 << 20;
  /// The bucket that is full first is smaller, so that the first message leaves early.
  int64_t first_bucket_bytes = 1 << 20;
};

/// What has been communicated; all 0 with one process.
struct DataParallelStatistics {
  int64_t parameters = 0;   ///< that are averaged: shared ones count once, frozen ones do not
  int64_t buckets = 0;      ///< of their gradients
  int64_t collectives = 0;  ///< calls over the network during the latest `backward`
  double overlap =
      0;  ///< share of the time of communication that the backward pass hid, by c10d's own samples
};

/// Trains one model in several processes, each on its own part of a batch.
///
///   auto group = Group::join();
///   DataParallel parallel(*model, group);
///   ...
///   parallel.backward(loss);  // instead of loss.backward()
///
/// After `backward`, each gradient is the mean over all processes: the gradient of a batch of all their parts, if their
/// losses are means over parts of equal size. Communication starts while the backward pass runs. The optimiser is each
/// process's own; equal first parameters and equal gradients keep the parameters equal, to the bit.
///
/// Memory: one more copy of the gradients during the backward pass. The gradients are views of the buckets; set them to
/// undefined (`zero_grad()`) or zero them before the next step.
class DataParallel final : public GradientAverage {
 public:
  /// Copies the parameters and buffers of rank 0 to the other processes. `model` must outlive the result, and whether its
  /// parameters require gradients must not change.
  /// Throws c10::ValueError, in all processes, if the models differ (names, shapes, dtypes, order, which parameters require
  /// a gradient, which are shared, which are on the CPU, and the options that modules print, as heads or dropout) or the options,
  /// if nothing requires a gradient, for a model that is neither on the CPU nor on the group's device, or on both, and for sizes
  /// that are not positive; PeerError.
  DataParallel(torch::nn::Module& model, std::shared_ptr<Group> group,
               const DataParallelOptions& options = {});
  ~DataParallel() override;

  /// `loss.backward()`; with `last`, the gradients accumulated since the previous such call are averaged. Without `last`,
  /// nothing is sent: so a step may accumulate the gradients of several parts of a batch.
  /// Throws c10::ValueError for a loss that is undefined, has not one element or requires no gradient, and names a parameter which
  /// it does not reach; with `last` in all processes, whichever of them it was, and before anything is computed: the group goes
  /// on. Throws PeerError.
  void backward(const at::Tensor& loss, bool last = true) override;

  DataParallelStatistics statistics() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace attentive
