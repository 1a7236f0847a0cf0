#pragma once

// The effects of a group, and of its failure above all, on the process that it runs in.

#include <csignal>
#include <exception>
#include <string>

namespace attentive::distributed {

/// Blocks SIGPIPE in this thread, and in threads that it starts, during its lifetime: a write to a connection
/// that another process has closed fails with an error and raises no signal. A SIGPIPE from elsewhere in the
/// program or from another process is not lost.
class SigpipeBlock {
 public:
  SigpipeBlock();
  SigpipeBlock(const SigpipeBlock&) = delete;
  SigpipeBlock& operator=(const SigpipeBlock&) = delete;
  ~SigpipeBlock();

 private:
  sigset_t before_{};
};

/// The first line of an error, without a backtrace.
std::string first_line(const std::exception& error);

/// From now on, this process ends without waiting for any thread: `exit` flushes the streams, runs the
/// handlers that were registered after this call, and ends the process with its status. Called when a group
/// has failed: its threads may still wait for missing processes, and use what the destructors of global
/// objects would destroy. Does nothing if the program has disabled it (allow_exit_at_once).
void exit_at_once();
/// Whether exit_at_once has an effect (GroupOptions::exit_at_once).
void allow_exit_at_once(bool allowed);

}  // namespace attentive::distributed
