// LibTorch's wheel contains Gloo, but not its headers. The header of c10d's Gloo backend includes five of
// them, each of which CMakeLists.txt makes an include of this file. This library calls nothing that they
// declare, and LibTorch's header needs only the names below.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace gloo {

/// The connections of one process to the others.
class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};

namespace rendezvous {

/// The store through which the processes find each other. LibTorch's adapter overrides these functions; this
/// library never creates one, and none of its object files may define the adapter's virtual table.
class Store {
 public:
  virtual ~Store();
  virtual void set(const std::string& key, const std::vector<char>& value) = 0;
  virtual std::vector<char> get(const std::string& key) = 0;
  virtual void wait(const std::vector<std::string>& keys) = 0;
  virtual void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) = 0;
};

}  // namespace rendezvous

namespace transport {

class Device;

/// Defined, not only declared, because LibTorch's header owns some by std::unique_ptr.
class UnboundBuffer {
 public:
  virtual ~UnboundBuffer();
};

}  // namespace transport
}  // namespace gloo
