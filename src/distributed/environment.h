#pragma once

#include <cstdint>
#include <string>

namespace attentive::distributed {

/// What torchrun, or another launcher, says about this process.
struct Environment {
  int64_t rank = 0;
  int64_t size = 1;
  int64_t local_rank = 0;
  std::string master_address;
  uint16_t master_port = 0;
  bool agent_serves = false;  ///< torchrun's agent serves the store, not rank 0
  int64_t restarts = 0;       ///< how often torchrun has started this job again

  bool alone() const { return size == 1; }
  bool serves() const { return !agent_serves && rank == 0; }
  /// "MASTER_ADDR:MASTER_PORT 127.0.0.1:29500"
  std::string store() const;
};

/// Reads it. Throws c10::ValueError, whose line names the variable and what to do.
Environment read_environment();

}  // namespace attentive::distributed
