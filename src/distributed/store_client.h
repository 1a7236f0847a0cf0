#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "distributed/limited_socket.h"

namespace attentive::distributed {

/// One connection to a store that c10d's TCPStore serves, in this job or in torchrun. c10d's own client waits
/// without limit for an answer, and prints a warning with a stack trace if the server disappears; this one
/// does neither. Any thread may call it; concurrent calls wait for each other. Throws StoreError.
class StoreClient {
 public:
  /// Tries until it has reached a store. `end` is also the deadline of calls until set_limit is called.
  StoreClient(std::string host, uint16_t port, Deadline end);
  /// From now on, each call waits at most this long for the store.
  void set_limit(std::chrono::milliseconds limit);

  const std::string& host() const { return host_; }
  uint16_t port() const { return port_; }

  void set(const std::string& key, const std::string& value);
  /// Sets the key if its value is `expected`, or if `expected` is empty and the key is not set. Returns its
  /// value afterwards.
  std::string compare_set(const std::string& key, const std::string& expected, const std::string& value);
  /// The value of a key that has been set.
  std::string get(const std::string& key);
  int64_t add(const std::string& key, int64_t number);
  bool remove(const std::string& key);
  int64_t size();
  /// Whether all keys have been set.
  bool check(const std::vector<std::string>& keys);
  /// Waits for all keys; false if they have not been set in time.
  bool wait(const std::vector<std::string>& keys, std::chrono::milliseconds timeout);

 private:
  class Request;
  void greet();
  Deadline end_of_call() const;
  template <typename T>
  T number();
  std::string text();
  void check_answer(bool expected) const;

  std::string host_;
  uint16_t port_;
  LimitedSocket socket_;
  std::mutex mutex_;  // held from a request until its answer
  Deadline end_;
  std::optional<std::chrono::milliseconds> limit_;
};

}  // namespace attentive::distributed
