#pragma once

#include <exception>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "distributed/c10d_internals.h"
#include "distributed/failures.h"

namespace attentive::c10d_internals {

/// Runs a part of a call over Gloo or NCCL, and throws its failure as a CallError.
template <typename Part>
void communicate(const Part& part) {
  try {
    part();
  } catch (const std::exception& error) {
    throw CallError(distributed::first_line(error));
  }
}

/// The backends of a group.
struct Backends {
  Collectives::Options options;
  c10::intrusive_ptr<c10d::Store> store;         // rank 0 may serve it
  c10::intrusive_ptr<c10d::Backend> gloo, nccl;  // the second one is null in a group on the CPU
  c10::intrusive_ptr<c10d::ProcessGroup> process_group;

  Backends() = default;
  Backends(const Backends&) = delete;
  Backends& operator=(const Backends&) = delete;
  ~Backends();

  c10d::Backend& backend_for(const at::Tensor& tensor) const { return tensor.is_cuda() ? *nccl : *gloo; }

  /// Waits until a call on `tensor` has finished. Throws CallError.
  void wait(c10d::Work& work, const at::Tensor& tensor) const;

  /// Makes a call on one tensor, which c10d takes as a list, and waits for it. Throws CallError.
  template <typename Start>
  void call(std::vector<at::Tensor> tensors, const Start& start) const {
    c10::intrusive_ptr<c10d::Work> work;
    communicate([&] { work = start(backend_for(tensors[0]), tensors); });
    wait(*work, tensors[0]);
  }
};

/// Waits until a call over NCCL has finished on the device. Throws the call's error, and c10::Error if it
/// takes longer than the timeout.
void wait_for_device(c10d::Work& work, const Collectives::Options& options);

/// LibTorch's Gloo backend, connected to all other processes. It uses the network interface that
/// GLOO_SOCKET_IFNAME names, or the one that this machine's host name resolves to.
c10::intrusive_ptr<c10d::Backend> gloo_backend(const c10::intrusive_ptr<c10d::Store>& store, int64_t rank,
                                               int64_t size, std::chrono::milliseconds timeout);

}  // namespace attentive::c10d_internals
