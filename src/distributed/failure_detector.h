#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "distributed/c10d_internals.h"

namespace attentive::distributed {

/// Why a group has ended.
struct Blame {
  int64_t rank = -1;  ///< the process to blame; -1 if it is unknown
  std::string line;   ///< "rank 2 (host node7, process 4711) is gone: …"
};

/// Whether the message of a failed call reports a timeout.
bool is_timeout(const std::string& message);

/// Determines, through the store, which process is missing after a call has failed, because the error of the
/// call does not say.
///
/// Each process has a thread that answers for it, even while the process waits in a call; a dead or stopped
/// process does not answer. The first process that finds a cause, or is one, publishes the group's only
/// verdict. Everybody's thread reads the verdict, so all processes know it even if the store disappears with
/// rank 0.
class FailureDetector {
 public:
  struct Place {
    c10d_internals::StoreAddress store;
    int64_t rank = 0;
    int64_t size = 1;
    bool serves = false;               ///< this process serves the store
    bool agent_serves = false;         ///< torchrun serves it; if neither does, rank 0 does
    std::string store_name;            ///< in errors
    std::vector<std::string> members;  ///< "rank 2 (host node7, process 4711)"
  };

  /// Connects to the store until `end`.
  FailureDetector(Place place, Deadline end);
  /// Tells the other processes that this one has left, unless there is a verdict.
  ~FailureDetector();

  /// Counts the calls that this process has begun.
  void begin_call();
  /// The verdict, if it has reached this process already. Causes no communication.
  std::optional<Blame> known() const;
  /// Returns the verdict after a call has failed with `message`. Blames this process if no other one is
  /// missing. After a timeout, a process that answers still counts as missing if it has begun fewer calls
  /// than this one.
  Blame ask(const std::string& message);
  /// If this process serves the store and is about to end, waits until the others know the verdict.
  void spread();
  /// Ends the group, blaming this process, unless the group has ended already.
  void blame_self(const std::string& reason);

 private:
  struct State;
  Blame within_limit(std::function<Blame()> work, std::chrono::milliseconds limit);

  std::shared_ptr<State> state_;
};

}  // namespace attentive::distributed
