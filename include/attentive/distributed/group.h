#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <torch/nn/module.h>

#include <attentive/train/training_group.h>

namespace attentive {

class Group;

namespace distributed {
class Connection;
/// For what else of this component communicates.
std::shared_ptr<Connection> connection_of(const Group& group);
}  // namespace distributed

/// How to join the other processes.
struct GroupOptions {
  /// Where the parameters of the models are: the CPU, over Gloo, or a CUDA device, over NCCL. at::kCUDA without an index is the device
  /// with the index LOCAL_RANK. Each process has one of its own. A process alone needs no NCCL.
  at::Device device = at::kCPU;
  /// How long a call waits for the other processes. `join` waits so long in all for the store and for the others to come, whatever
  /// answers at the address of the store.
  std::chrono::milliseconds timeout = std::chrono::seconds(60);
  /// How the program ends after a call has failed, or another process has not answered when this one left. With `true`, `exit` and the
  /// return from main() flush the streams, run the handlers that were registered after the failure, and end the process with its
  /// status: older handlers and the destructors of global objects do not run, for threads of the group that still wait for another
  /// process use what these destroy. With `false` they run, and the program must not mind.
  bool exit_at_once = true;
};

/// The processes that work together, one of which this program is.
///
/// All processes call the same functions in the same order, from one thread. Every call begins with a message of 16 bytes by which
/// they see that it is the same: calls that differ, or that one of them is refused, throw c10::ValueError in all, with a rank and what
/// differs, and the group goes on. A call in which another process is missing throws PeerError. A process leaves when its
/// Group is destroyed; do so in all of them after the same call.
class Group final : public TrainingGroup, public std::enable_shared_from_this<Group> {
 public:
  /// Joins the processes that torchrun started, as its environment says: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and
  /// MASTER_PORT (where rank 0 serves a store, or torchrun's agent if TORCHELASTIC_USE_AGENT_STORE says so) and
  /// TORCHELASTIC_RESTART_COUNT. Any other launcher may set the same variables. Without RANK and WORLD_SIZE, and with
  /// WORLD_SIZE=1, the group is this process alone and its calls do nothing: one program serves both.
  ///
  /// SIGPIPE stays the program's own affair: the group's threads keep it from connections that another process closes, here and in
  /// the calls of the group alone, so that a write of the program to a stream that nobody reads does what it does in one process.
  /// On CUDA, with several processes, the device becomes the current one of this thread, so that at::kCUDA means it.
  /// Throws c10::ValueError for variables that are missing, cannot be read or contradict each other, for a device that is not
  /// there or that two processes share, and for CUDA in a build without NCCL (ATTENTIVE_NCCL); c10::Error if the store cannot be served or reached, if what answers at its address is none, and if a
  /// process does not come. The message names the variable or the rank, and what to do.
  static std::shared_ptr<Group> join(const GroupOptions& options = {});
  ~Group() override;

  int64_t rank() const override;
  int64_t size() const override;
  /// Which of the processes on this machine this is, from 0.
  int64_t local_rank() const;

  /// The CPU, or the CUDA device of this process, with its index.
  at::Device device() const;

  /// The tensors of these three calls are on the CPU or on `device()`, in all processes alike.
  std::vector<at::Tensor> gather(const at::Tensor& tensor) override;
  /// Overwrites the tensor with that of the process `root`. It has the same shape and dtype, any dtype, in all processes, and its
  /// elements share no memory.
  void broadcast(const at::Tensor& tensor, int64_t root);
  /// Overwrites the tensor with the sum over all processes; the same bits everywhere. float64, float32, float16, bfloat16,
  /// int64, int32, int8 or uint8; integers wrap around. Its elements share no memory. No gradient flows through it.
  void sum(const at::Tensor& tensor);
  /// Returns when all processes have called it.
  void barrier();
  /// A DataParallel with default options.
  std::unique_ptr<GradientAverage> average_gradients(torch::nn::Module& model) override;

 private:
  friend std::shared_ptr<distributed::Connection> distributed::connection_of(const Group& group);
  explicit Group(std::shared_ptr<distributed::Connection> connection);

  std::shared_ptr<distributed::Connection> connection_;
};

}  // namespace attentive
