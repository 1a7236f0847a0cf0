#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <attentive/distributed/group.h>

#include "distributed/c10d_internals.h"
#include "distributed/environment.h"
#include "distributed/failure_detector.h"

namespace attentive::distributed {

/// One process's part in a group of several: its place, the store, the collectives and what is known of the others.
class Connection {
 public:
  /// Meets the other processes. `device` is the one that choose_device has found.
  Connection(const Environment& environment, const at::Device& device, std::chrono::milliseconds timeout);
  /// Of a process alone: no calls.
  Connection(const Environment& environment, const at::Device& device)
      : environment_(environment), device_(device) {}
  ~Connection();

  const Environment& environment() const { return environment_; }
  const at::Device& device() const { return device_; }
  /// Whether calls take tensors on this device: the CPU or the group's.
  bool takes(const at::Device& device) const { return device.is_cpu() || device == device_; }
  const c10d_internals::Collectives& collectives() const { return *collectives_; }

  /// Runs one call that all processes make. If it fails because another process is missing, throws PeerError; any other error is
  /// rethrown, and ends the group: the others learn the reason. `who` is the name of the public function.
  void call(const char* who, const std::function<void(c10d_internals::Collectives&)>& work);
  std::vector<at::Tensor> gather(const char* who, const at::Tensor& tensor);
  void broadcast(const char* who, const at::Tensor& tensor, int64_t root);
  /// A text of each process, whose lengths all know.
  std::vector<std::string> gather_texts(const char* who, std::string text,
                                        const std::vector<int64_t>& lengths);

  /// Counts the models that train in the group, in the same order in all processes.
  int64_t next_model() { return ++models_; }

  /// A tag for the messages of the next call that sends some, the same in all processes.
  int next_tag() { return tag_ = (tag_ + 1) & 0x3fffffff; }

  /// Ends the group because of this process.
  void fail(const std::string& reason);

 private:
  void meet(std::chrono::milliseconds timeout, Deadline end);
  std::vector<std::string> await_members(std::chrono::milliseconds timeout, Deadline end);
  [[noreturn]] void blame(const char* who, const Blame& verdict);
  void abandon();

  Environment environment_;
  at::Device device_;
  int64_t models_ = 0;
  int tag_ = 0;
  std::unique_ptr<c10d_internals::KeyStore> store_;
  std::unique_ptr<c10d_internals::Collectives> collectives_;
  std::unique_ptr<RollCall> roll_call_;
};

/// The connection of this process, in use or left behind by an exception; or none.
std::shared_ptr<Connection> current_connection();
void set_current_connection(const std::shared_ptr<Connection>& connection);
/// Keeps the connection of a group that an exception destroys, so that the others do not see it close before they know why.
void keep_for_report(std::shared_ptr<Connection> connection);

/// The first line of an error, without a backtrace.
std::string first_line(const std::exception& error);

}  // namespace attentive::distributed
