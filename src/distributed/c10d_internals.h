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

/// Everything that this component uses of LibTorch's c10d, which is not a documented API: names of it move between releases.
/// No header but c10d_backends.h and gloo_backend.h includes c10d.
namespace attentive::c10d_internals {

/// Where the store of a job is. It is served by rank 0 or by torchrun; everybody else connects to it.
struct StoreAddress {
  std::string host;
  uint16_t port = 0;
  std::string prefix;  ///< of every key
};

/// One connection to the store: texts by key, which every process of the job sees. A call blocks the others of the same
/// connection, so that each thread needs its own. Throws distributed::StoreError, and what c10d throws where this process cannot serve.
class KeyStore {
 public:
  /// Tries until `end`, which is also that of the calls, until set_limit.
  KeyStore(const StoreAddress& address, bool serves, distributed::Deadline end);
  /// From now on each call waits so long for the store.
  void set_limit(std::chrono::milliseconds limit);
  void set(const std::string& key, const std::string& value);
  /// Without waiting.
  std::optional<std::string> find(const std::string& key);
  /// Sets the key unless it has been set; its value then.
  std::string set_first(const std::string& key, const std::string& value);
  /// Counts the calls for this key in all processes.
  int64_t count(const std::string& key);
  /// Waits for a key; false if it did not come.
  bool wait(const std::string& key, std::chrono::milliseconds timeout);

 private:
  friend class Collectives;
  struct Store;
  std::shared_ptr<Store> store_;
};

/// Gloo for tensors on the CPU, and NCCL for those on the device of a group that has one.
struct Backends;

/// A message to one process and one from another, under way.
class Exchange {
 public:
  /// Until the one is received and the other may be changed.
  void wait();

 private:
  friend class Collectives;
  struct State;
  std::shared_ptr<State> state_;
};

/// The calls that all processes make together. Tensors are contiguous, on the CPU or on the group's device. When a call returns, its
/// results are there, on a CUDA device too: its failure is the call's own.
class Collectives {
 public:
  struct Options {
    int64_t rank = 0;
    int64_t size = 1;
    at::Device device = at::kCPU;
    std::chrono::milliseconds timeout{0};
    /// Whether it is of no use to wait any longer; asked while a call waits for a CUDA device.
    std::function<bool()> given_up;
  };
  static std::unique_ptr<Collectives> connect(KeyStore& store, Options options);
  void broadcast(at::Tensor tensor, int64_t root);
  std::vector<at::Tensor> gather(at::Tensor tensor);
  void sum(at::Tensor tensor);
  /// Starts to send one tensor to another process and to receive one of the same size from another process. Over Gloo, messages of
  /// other tags wait for their own receivers.
  Exchange exchange(at::Tensor sent, int64_t to, at::Tensor received, int64_t from, int tag);
  /// How many calls went out so far, those of the gradients included.
  uint64_t count() const;

 private:
  friend class Reducer;
  std::shared_ptr<Backends> backends_;
};

/// Averages gradients bucket by bucket while the backward pass computes the next ones.
class Reducer {
 public:
  /// The collectives may go before this; they then end with it.
  Reducer(std::vector<at::Tensor> parameters, const std::vector<std::string>& names,
          const Collectives& collectives, int64_t bucket_bytes, int64_t first_bucket_bytes);
  /// Which parameters the graph of a loss reaches, in their order.
  std::vector<bool> reached_by(const at::Tensor& loss) const;
  /// Before the backward pass whose gradients are to be averaged.
  void prepare();
  /// After it: until they are.
  void wait();
  int64_t buckets() const;
  /// The share of the time of communication during which the backward pass went on; of the steps that c10d samples.
  double overlap() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace attentive::c10d_internals
