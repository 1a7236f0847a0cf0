#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include <c10/util/Exception.h>

namespace attentive::distributed {

using Deadline = std::chrono::steady_clock::time_point;

/// Why a connection has failed.
enum class Fault {
  Unreachable,  ///< nobody listens there, or the host name cannot be resolved
  Closed,       ///< the other end has closed it
  Silent,       ///< the other end has not answered in time
  Foreign,      ///< the other end does not answer as a store does
};

/// An error of a connection to the store. It derives from the class that c10d's own stores throw.
class StoreError final : public c10::DistNetworkError {
 public:
  StoreError(Fault fault, const std::string& line) : c10::DistNetworkError(line), fault_(fault) {}
  Fault fault() const { return fault_; }

 private:
  Fault fault_;
};

/// A TCP connection whose calls end by their deadline, whatever the other end does. It raises no SIGPIPE.
/// Throws StoreError.
class LimitedSocket {
 public:
  LimitedSocket() = default;
  /// Tries each address of the host once.
  LimitedSocket(const std::string& host, uint16_t port, Deadline end);
  LimitedSocket(LimitedSocket&& other) noexcept;
  LimitedSocket& operator=(LimitedSocket&& other) noexcept;
  ~LimitedSocket();

  void send(const std::string& bytes, Deadline end);
  void receive(void* bytes, size_t size, Deadline end);
  /// Waits until data can be received; false if none arrived by `end`.
  bool readable(Deadline end) const;

 private:
  bool ready(short events, Deadline end) const;

  int descriptor_ = -1;
};

}  // namespace attentive::distributed
