#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/util/Exception.h>
#include <torch/nn/module.h>

#include <attentive/train/training_group.h>

namespace attentive {

class Group;

namespace distributed {
class Connection;
/// Gives the other functions of this component the group's connection.
std::shared_ptr<Connection> connection_of(const Group& group);
}  // namespace distributed

/// Thrown by a call of a Group that fails because another process is missing or late: it has ended, is
/// stopped, has left, or makes other calls. `what()` is one line, the name of the function and the words of
/// LibTorch's c10d, such as "Group::barrier: [...] Connection closed by peer [10.0.0.7]:41234". It does not
/// say which process was the first to fail; see what the others have printed. The group is unusable from then
/// on: every later call throws the same error. End the program with a non-zero status, so that torchrun can
/// restart all processes.
class PeerError : public c10::Error {
 public:
  explicit PeerError(const std::string& line, int64_t rank = -1) : c10::Error(line), rank_(rank) {}
  /// The process that is missing; -1, because c10d does not tell which.
  int64_t rank() const { return rank_; }

 private:
  int64_t rank_;
};

/// Ends this process's part in its group, and reports the failure to torchrun. Call it in the `catch` of
/// main().
///
///   int main() {
///     try {
///       train(attentive::Group::join());
///     } catch (const std::exception& error) {
///       attentive::report_failure(error);
///       std::fprintf(stderr, "%s\n", error.what());
///       return 1;
///     }
///   }
///
/// The other processes of the group find out when this one ends. If torchrun asks for a report
/// (TORCHELASTIC_ERROR_FILE), the first line of the message is written to that file, and torchrun shows it.
/// Anything that is impossible is skipped; this function never throws.
void report_failure(const std::exception& error) noexcept;

/// How to join the other processes.
struct GroupOptions {
  /// The device that holds the parameters of the models: the CPU, with communication over Gloo, or a CUDA
  /// device, with NCCL. at::kCUDA without an index means the device with the index LOCAL_RANK. Each process
  /// needs a CUDA device of its own. A single process needs no NCCL.
  at::Device device = at::kCPU;
  /// How long a call waits for the other processes. `join` waits this long in total, for the store and for
  /// the other processes, whatever answers at the address of the store.
  std::chrono::milliseconds timeout = std::chrono::seconds(60);
  /// How the program ends after a call has failed. With `true`, `exit` and the return from main() flush the
  /// streams, run the handlers that were registered after the failure, and end the process with its status.
  /// Handlers registered earlier and destructors of global objects do not run, because threads of the group
  /// that still wait for another process use what these would destroy. With `false` they do run, and the
  /// program must tolerate that. The setting of the last `join` holds for the process.
  bool exit_at_once = true;
};

/// A group of processes that work together; this program is one of them.
///
/// All processes call the same functions in the same order, from one thread. Every call begins with a message
/// of 16 bytes by which the processes check that they all make the same call. If the calls differ, or if one
/// process's arguments are refused, all processes throw a c10::ValueError that names a rank and the
/// difference; the group remains usable. A call in which another process is missing throws PeerError. A
/// process leaves when its Group is destroyed; destroy it in all processes after the same call. If an
/// exception destroys it, the process leaves when it ends.
///
/// A process is in one group of several processes at a time: another `join` throws c10::ValueError until that
/// group has been destroyed.
class Group final : public TrainingGroup, public std::enable_shared_from_this<Group> {
 public:
  /// Joins the processes that torchrun started, as described by environment variables: RANK, WORLD_SIZE,
  /// LOCAL_RANK, MASTER_ADDR, MASTER_PORT (where rank 0 serves a store, or torchrun's agent if
  /// TORCHELASTIC_USE_AGENT_STORE says so) and TORCHELASTIC_RESTART_COUNT. Any other launcher may set these
  /// variables. Without RANK and WORLD_SIZE, or with WORLD_SIZE=1, the group consists of this process alone
  /// and its calls do nothing, so one program serves both cases.
  ///
  /// The handling of SIGPIPE is left to the program. A connection closed by another process raises no SIGPIPE
  /// in the group's threads or inside the group's calls, and a write of the program to a closed stream
  /// behaves as it does without a group.
  /// On CUDA, with several processes, the device becomes the current one of this thread, so that at::kCUDA
  /// means it.
  /// Throws c10::ValueError for variables that are missing, malformed or contradictory; for a device that
  /// does not exist or that two processes share; and for CUDA in a build without NCCL (ATTENTIVE_NCCL).
  /// Throws c10::Error if the store cannot be served or reached, if the server at its address is not a store,
  /// and if a process does not join in time. The message names the variable or the rank, and what to do.
  static std::shared_ptr<Group> join(const GroupOptions& options = {});
  ~Group() override;

  int64_t rank() const override;
  int64_t size() const override;
  /// The index of this process among those on this machine, from 0.
  int64_t local_rank() const;

  /// The CPU, or the CUDA device of this process, with its index.
  at::Device device() const;

  /// The tensors of gather, broadcast and sum are on the CPU or on `device()`, and in all processes on the
  /// same kind of device.
  std::vector<at::Tensor> gather(const at::Tensor& tensor) override;
  /// Overwrites the tensor with that of the process `root`. The tensor may have any dtype; shape and dtype
  /// are the same in all processes, and no two elements share memory.
  void broadcast(const at::Tensor& tensor, int64_t root);
  /// Overwrites the tensor with the sum over all processes, bit-identical in every process. Dtypes: float64,
  /// float32, float16, bfloat16, int64, int32, int8, uint8; integers wrap around. No two elements may share
  /// memory. No gradient flows through it.
  void sum(const at::Tensor& tensor);
  /// Returns once all processes have called it.
  void barrier();
  /// Makes a DataParallel with default options.
  std::unique_ptr<GradientAverage> average_gradients(torch::nn::Module& model) override;

 private:
  friend std::shared_ptr<distributed::Connection> distributed::connection_of(const Group& group);
  explicit Group(std::shared_ptr<distributed::Connection> connection);

  std::shared_ptr<distributed::Connection> connection_;
};

}  // namespace attentive
