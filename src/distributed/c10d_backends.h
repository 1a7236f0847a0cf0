#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "distributed/c10d_internals.h"

namespace attentive::c10d_internals {

/// The backends of a group.
struct Backends {
  Collectives::Options options;
  c10::intrusive_ptr<c10d::Backend> gloo, nccl;  // the second one is null in a group on the CPU
  c10::intrusive_ptr<c10d::ProcessGroup> process_group;

  Backends() = default;
  Backends(const Backends&) = delete;
  Backends& operator=(const Backends&) = delete;
  ~Backends();

  c10d::Backend& backend_for(const at::Tensor& tensor) const { return tensor.is_cuda() ? *nccl : *gloo; }

  /// Waits until a call on `tensor` has finished; throws its error.
  void wait(c10d::Work& work, const at::Tensor& tensor) const;
};

/// Waits until a call over NCCL has finished on the device. Throws the call's error, and c10::Error if it is
/// given up or takes longer than the timeout.
void wait_for_device(c10d::Work& work, const Collectives::Options& options);

}  // namespace attentive::c10d_internals
