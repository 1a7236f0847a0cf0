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
  int64_t rank = -1;  ///< who is to blame; -1 if nobody is known
  std::string line;   ///< "rank 2 (host node7, process 4711) is gone: …"
};

/// Whether the error of a call says that its time was over.
bool is_timeout(const std::string& message);

/// Finds out, through the store, which process is missing when a call has failed, because the error of the call does not say.
///
/// Each process has a thread that answers for it, even while the process waits in a call. Who is dead or stopped does not
/// answer. The first process that finds or is a reason sets the group's one verdict, and everybody's thread reads it; so it
/// is known to all even if the store goes with rank 0.
class RollCall {
 public:
  struct Place {
    c10d_internals::StoreAddress store;
    int64_t rank = 0;
    int64_t size = 1;
    bool serves = false;               ///< this process serves the store
    bool agent_serves = false;         ///< torchrun does; otherwise, rank 0
    std::string store_name;            ///< in errors
    std::vector<std::string> members;  ///< "rank 2 (host node7, process 4711)"
  };

  /// Connects to the store until `end`.
  RollCall(Place place, Deadline end);
  /// Tells the others that this process has left, if there is no verdict.
  ~RollCall();

  /// Counts the calls that this process has begun.
  void begin_call();
  /// The verdict, if it has come here already. Costs no communication.
  std::optional<Blame> known() const;
  /// The verdict after a call has failed with `message`. If nobody is missing, it blames this process. A process that is there is
  /// missing if the call has timed out and that process has begun fewer calls.
  Blame ask(const std::string& message);
  /// Waits until the others know the verdict, if this process serves the store and is about to end.
  void spread();
  /// Ends the group because of this process, unless it has ended already.
  void blame_self(const std::string& reason);

 private:
  struct State;
  Blame within_limit(std::function<Blame()> work, std::chrono::milliseconds limit);

  std::shared_ptr<State> state_;
};

}  // namespace attentive::distributed
