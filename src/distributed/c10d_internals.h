#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

/// Everything that this component uses of LibTorch's c10d, which has no documented C++ API: names move
/// between releases. Only c10d_backends.h and gloo_backend.cpp include headers of c10d.
namespace attentive::c10d_internals {

/// The failure of a call over Gloo or NCCL, in the words of c10d.
class CallError : public std::runtime_error {
  using runtime_error::runtime_error;
};

/// Connects to the store, which holds texts by key for all processes of the job, within `timeout` or some
/// multiple of it. Rank 0 or torchrun serves it. The prefix is put before every key. Throws c10d's errors.
/// This call, and those of the store, may wait without limit for a server that does not answer.
c10::intrusive_ptr<c10d::Store> open_store(const std::string& host, uint16_t port, const std::string& prefix,
                                           bool serves, std::chrono::milliseconds timeout);

/// Gloo for tensors on the CPU, and NCCL for those on the device of a group that has one.
struct Backends;

/// The calls that all processes make together. Tensors are contiguous, on the CPU or on the group's device.
/// When a call returns, its results are complete, on a CUDA device too, so that the call itself reports its
/// failure, as a CallError.
class Collectives {
 public:
  struct Options {
    int64_t rank = 0;
    int64_t size = 1;
    at::Device device = at::kCPU;
    std::chrono::milliseconds timeout{0};
  };
  static std::unique_ptr<Collectives> connect(const c10::intrusive_ptr<c10d::Store>& store, Options options);
  void broadcast(at::Tensor tensor, int64_t root);
  std::vector<at::Tensor> gather(at::Tensor tensor);
  void sum(at::Tensor tensor);
  /// Starts to send one tensor to a process and to receive one of the same size from another. The result
  /// waits until the one is received and the buffer of the other may be changed. Over Gloo, a message is only
  /// delivered to a receiver that expects its tag.
  std::function<void()> exchange(at::Tensor sent, int64_t to, at::Tensor received, int64_t from, int tag);
  /// The number of calls so far, including those that average gradients.
  uint64_t count() const;

 private:
  friend class Reducer;
  std::shared_ptr<Backends> backends_;
};

/// Averages gradients bucket by bucket while the backward pass computes the next ones.
class Reducer {
 public:
  /// The Collectives may be destroyed before the Reducer; both are then released together.
  Reducer(std::vector<at::Tensor> parameters, const std::vector<std::string>& names,
          const Collectives& collectives, int64_t bucket_bytes, int64_t first_bucket_bytes);
  /// For each parameter, in order: whether the graph of the loss reaches it.
  std::vector<bool> reached_by(const at::Tensor& loss) const;
  /// Runs the backward pass and averages its gradients. Throws CallError, and what the pass throws.
  void backward(const at::Tensor& loss);
  int64_t buckets() const;
  /// The share of the communication time that overlapped with the backward pass, in the steps that c10d
  /// samples.
  double overlap() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

/// The reason why NCCL cannot be used, in words; empty if it can.
std::string nccl_lack();
/// The address of a CUDA device within its machine, such as "0000:1B:00.0".
std::string nccl_address(const at::Device& device);
/// LibTorch's NCCL backend, connected to all other processes, which call this at the same time. Waits without
/// limit for a process that is stopped.
c10::intrusive_ptr<c10d::Backend> nccl_backend(const c10::intrusive_ptr<c10d::Store>& store,
                                               const Collectives::Options& options);

}  // namespace attentive::c10d_internals
