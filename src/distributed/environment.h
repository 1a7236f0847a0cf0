#pragma once

#include <cstdint>
#include <string>

namespace attentive::distributed {

/// The environment variables that torchrun, or another launcher, has set for this process.
struct Environment {
  int64_t rank = 0;
  int64_t size = 1;
  int64_t local_rank = 0;
  std::string master_address;
  uint16_t master_port = 0;
  bool agent_serves = false;  ///< torchrun's agent serves the store, not rank 0
  int64_t restarts = 0;       ///< how often torchrun has restarted this job

  bool alone() const { return size == 1; }
  bool serves() const { return !agent_serves && rank == 0; }
  /// Describes the store's address: "MASTER_ADDR:MASTER_PORT 127.0.0.1:29500".
  std::string store() const;
};

/// Reads the variables. Throws c10::ValueError; the message is one line that names the variable and what to
/// do.
Environment read_environment();

}  // namespace attentive::distributed
