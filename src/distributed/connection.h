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

/// One process's membership in a group of several: its rank, the store, the collectives and the failure
/// detector.
class Connection {
 public:
  /// Meets the other processes. `device` is the result of choose_device.
  Connection(const Environment& environment, const at::Device& device, std::chrono::milliseconds timeout);
  /// For a single process: its calls communicate nothing.
  Connection(const Environment& environment, const at::Device& device)
      : environment_(environment), device_(device) {}
  ~Connection();

  const Environment& environment() const { return environment_; }
  const at::Device& device() const { return device_; }
  /// Whether calls accept tensors on this device: the CPU or the group's device.
  bool takes(const at::Device& device) const { return device.is_cpu() || device == device_; }
  const c10d_internals::Collectives& collectives() const { return *collectives_; }

  /// Runs one call that all processes make. If it fails because another process is missing, throws PeerError.
  /// Any other error is rethrown and ends the group, and the others learn the reason. `caller` is the name of
  /// the public function.
  void call(const char* caller, const std::function<void(c10d_internals::Collectives&)>& work);
  std::vector<at::Tensor> gather(const char* caller, const at::Tensor& tensor);
  void broadcast(const char* caller, const at::Tensor& tensor, int64_t root);
  /// Gathers a text from each process. All processes know the lengths of all the texts.
  std::vector<std::string> gather_texts(const char* caller, std::string text,
                                        const std::vector<int64_t>& lengths);

  /// Numbers the models that are trained in the group, equally in all processes.
  int64_t next_model() { return ++models_; }

  /// A new tag for the messages of the next call, the same in all processes.
  int next_tag() { return tag_ = (tag_ + 1) & 0x3fffffff; }

  /// Ends the group, blaming this process.
  void fail(const std::string& reason);

 private:
  void meet(std::chrono::milliseconds timeout, Deadline end);
  std::vector<std::string> await_members(std::chrono::milliseconds timeout, Deadline end);
  [[noreturn]] void blame(const char* caller, const Blame& verdict);
  void abandon();

  Environment environment_;
  at::Device device_;
  int64_t models_ = 0;
  int tag_ = 0;
  std::unique_ptr<c10d_internals::KeyStore> store_;
  std::unique_ptr<c10d_internals::Collectives> collectives_;
  std::unique_ptr<FailureDetector> detector_;
};

/// This process's connection, in use or kept by keep_for_report; null if there is none.
std::shared_ptr<Connection> current_connection();
void set_current_connection(const std::shared_ptr<Connection>& connection);
/// Keeps the connection of a group that an exception destroys, so that it is not closed before the other
/// processes learn the reason.
void keep_for_report(std::shared_ptr<Connection> connection);

/// The first line of an error, without a backtrace.
std::string first_line(const std::exception& error);

}  // namespace attentive::distributed
