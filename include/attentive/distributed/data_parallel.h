#pragma once

#include <cstdint>
#include <memory>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <attentive/distributed/group.h>
#include <attentive/train/training_group.h>

namespace attentive {

struct DataParallelOptions {
  /// Gradients are sent in buckets of about this size, in bytes, ordered from the last parameter of the model
  /// to the first. A bucket is sent while the backward pass still runs if modules are registered in the order
  /// in which they are used. The order never changes, so a resumed run sums in the same order as an
  /// uninterrupted one.
  int64_t bucket_bytes = 25 << 20;
  /// The size of the first bucket to fill, in bytes; smaller, so that communication starts early.
  int64_t first_bucket_bytes = 1 << 20;
};

/// How much has been communicated; all 0 with one process.
struct DataParallelStatistics {
  int64_t parameters = 0;   ///< the number of averaged parameters: shared ones count once, frozen ones do not
  int64_t buckets = 0;      ///< the number of buckets that hold their gradients
  int64_t collectives = 0;  ///< network calls during the latest `backward`
  /// Share of the communication time that the backward pass hid, as sampled by c10d.
  double overlap = 0;
};

/// Trains one model in several processes, each on its own part of a batch.
///
///   auto group = Group::join();
///   DataParallel parallel(*model, group);
///   ...
///   parallel.backward(loss);  // instead of loss.backward()
///
/// After `backward`, each gradient is the mean over all processes. If each loss is a mean over a part of
/// equal size, that is the gradient of one batch made of all the parts. Communication starts while the
/// backward pass runs. Each process runs its own optimizer; equal initial parameters and equal gradients keep
/// the parameters bit-identical.
///
/// Memory: one more copy of the gradients during the backward pass. The gradients are views of the buckets;
/// zero them or set them to undefined (`zero_grad()`) before the next step.
class DataParallel final : public GradientAverage {
 public:
  /// Copies the parameters and buffers of rank 0 to the other processes. `model` must outlive this object,
  /// and whether its parameters require gradients must not change.
  /// Throws c10::ValueError, in all processes, if the options or the models differ (names, shapes, dtypes,
  /// order, which parameters require a gradient, which are shared, which are on the CPU, and the options that
  /// modules print, such as heads or dropout); if no parameter requires a gradient; if the model is not
  /// entirely on the CPU or entirely on the group's device; and for sizes that are not positive.
  /// Throws PeerError if another process is missing.
  DataParallel(torch::nn::Module& model, std::shared_ptr<Group> group,
               const DataParallelOptions& options = {});
  ~DataParallel() override;

  /// Runs `loss.backward()`. With `last`, averages the gradients accumulated since the previous such call.
  /// Without `last`, sends nothing, so that a step can accumulate the gradients of several parts of a batch.
  /// Throws c10::ValueError if the loss is undefined, does not have exactly one element or requires no
  /// gradient, and, naming the parameter, if it does not reach one of the trained parameters or if a frozen
  /// one requires a gradient by now. With `last`, one such loss makes all processes throw, before any
  /// gradient is computed; the group remains usable.
  /// Throws PeerError if another process is missing.
  void backward(const at::Tensor& loss, bool last = true) override;

  DataParallelStatistics statistics() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace attentive
