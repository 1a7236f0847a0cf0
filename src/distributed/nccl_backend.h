#pragma once

#include <string>

#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>

#include "distributed/c10d_internals.h"

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace attentive::c10d_internals {

/// Communication between CUDA devices.
class Nccl {
 public:
  virtual ~Nccl() = default;
  /// The reason why NCCL cannot be used, in words; empty if it can.
  virtual std::string lack() const = 0;
  /// The address of a device within its machine, such as "0000:1B:00.0".
  virtual std::string address(const at::Device& device) const = 0;
  /// LibTorch's NCCL backend, connected to all other processes, which call this at the same time. The group's
  /// device becomes the current one of this thread. Throws c10::Error, also if they have not connected within
  /// the timeout.
  virtual c10::intrusive_ptr<c10d::Backend> connect(const c10::intrusive_ptr<c10d::Store>& store,
                                                    const Collectives::Options& options) const = 0;
};

/// The NCCL of this build; null if it has none.
const Nccl* nccl();

}  // namespace attentive::c10d_internals
