#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "distributed/limited_socket.h"

/// Everything that this component uses of LibTorch's c10d, which has no documented C++ API: names move
/// between releases. Only c10d_backends.h and gloo_backend.h include headers of c10d.
namespace attentive::c10d_internals {

/// The address of a job's store. Rank 0 or torchrun serves it; all other processes connect to it.
struct StoreAddress {
  std::string host;
  uint16_t port = 0;
  std::string prefix;  ///< put before every key
};

/// One connection to the store, which holds texts by key for all processes of the job. A call blocks the
/// other calls of the same connection, so each thread needs its own. Throws distributed::StoreError, and
/// c10d's own errors if this process cannot serve the store.
class KeyStore {
 public:
  /// Tries to connect until `end`, which is also the deadline of calls until set_limit is called.
  KeyStore(const StoreAddress& address, bool serves, distributed::Deadline end);
  /// From now on, each call waits at most this long for the store.
  void set_limit(std::chrono::milliseconds limit);
  void set(const std::string& key, const std::string& value);
  /// Returns the value of a key without waiting for it.
  std::optional<std::string> find(const std::string& key);
  /// Sets the key if nobody has; returns its value afterwards.
  std::string set_first(const std::string& key, const std::string& value);
  /// Increments the counter of this key, which all processes share, and returns it.
  int64_t count(const std::string& key);
  /// Waits for a key; false if it has not been set in time.
  bool wait(const std::string& key, std::chrono::milliseconds timeout);

 private:
  friend class Collectives;
  struct Store;
  std::shared_ptr<Store> store_;
};

/// Gloo for tensors on the CPU, and NCCL for those on the device of a group that has one.
struct Backends;

/// A message to one process and a message from another one, both in progress.
class Exchange {
 public:
  /// Waits until the one is received and the buffer of the other may be changed.
  void wait();

 private:
  friend class Collectives;
  struct State;
  std::shared_ptr<State> state_;
};

/// The calls that all processes make together. Tensors are contiguous, on the CPU or on the group's device.
/// When a call returns, its results are complete, on a CUDA device too, so that the call itself reports its
/// failure.
class Collectives {
 public:
  struct Options {
    int64_t rank = 0;
    int64_t size = 1;
    at::Device device = at::kCPU;
    std::chrono::milliseconds timeout{0};
    /// Returns true if further waiting is pointless; asked while a call waits for a CUDA device.
    std::function<bool()> given_up;
  };
  static std::unique_ptr<Collectives> connect(KeyStore& store, Options options);
  void broadcast(at::Tensor tensor, int64_t root);
  std::vector<at::Tensor> gather(at::Tensor tensor);
  void sum(at::Tensor tensor);
  /// Starts to send one tensor to a process and to receive one of the same size from another. Over Gloo, a
  /// message is only delivered to a receiver that expects its tag.
  Exchange exchange(at::Tensor sent, int64_t to, at::Tensor received, int64_t from, int tag);
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
  /// To be called before the backward pass whose gradients are to be averaged.
  void prepare();
  /// To be called after it; waits until the gradients are averaged.
  void wait();
  int64_t buckets() const;
  /// The share of the communication time that overlapped with the backward pass, in the steps that c10d
  /// samples.
  double overlap() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace attentive::c10d_internals
