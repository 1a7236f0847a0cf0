#pragma once

// What a group does to the process that it runs in: SIGPIPE, and the end.

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

/// From now on, the end of this process waits for no thread: `exit` flushes the streams, runs the handlers that were registered
/// after this call, and ends the process with its status. For a group that has failed: its threads still wait for processes that do
/// not come, and would use what the destructors of global objects destroy. Does nothing where the program does not want it.
void exit_at_once();
/// Whether it does.
void allow_exit_at_once(bool allowed);

}  // namespace attentive::distributed
