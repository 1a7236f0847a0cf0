#pragma once

#include <csignal>

namespace attentive::distributed {

/// Keeps SIGPIPE from this thread, and from threads that it starts, while this lives: a connection that another process has closed fails
/// with an error and raises no signal. What the program's own streams raise elsewhere, and what other processes send, is not lost.
class SigpipeBlock {
 public:
  SigpipeBlock();
  SigpipeBlock(const SigpipeBlock&) = delete;
  SigpipeBlock& operator=(const SigpipeBlock&) = delete;
  ~SigpipeBlock();

 private:
  sigset_t before_{};
};

}  // namespace attentive::distributed
