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

namespace attentive::distributed {

/// One process's membership in a group of several: its rank and the collectives.
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

  /// Runs one call that all processes make. If the communication fails, throws PeerError. Any other error is
  /// rethrown. Both end the group: every later call throws PeerError. `caller` is the name of the public
  /// function.
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

  /// Ends the group for this process. The collectives are not destroyed, because their threads may still wait
  /// for processes that are missing: the process closes its connections when it ends, at once (exit_at_once).
  void abandon(const std::string& reason);

 private:
  Environment environment_;
  at::Device device_;
  int64_t models_ = 0;
  int tag_ = 0;
  std::string reason_;  // why the group has ended
  std::unique_ptr<c10d_internals::Collectives> collectives_;
};

/// This process's connection, if there is one.
std::weak_ptr<Connection>& current_connection();

}  // namespace attentive::distributed
