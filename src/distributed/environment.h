#pragma once

// The circumstances of this process. Devices are arguments, so that any machine can test every refusal.

#include <cstdint>
#include <string>
#include <vector>

#include <c10/core/Device.h>

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

/// The devices of this machine, as far as choose_device needs to know them.
struct Devices {
  int64_t seen = 0;       ///< CUDA devices that LibTorch sees
  std::string nccl_lack;  ///< why they cannot communicate, in words; empty if they can
};
Devices devices_here();

/// Returns `wanted`, with the index LOCAL_RANK if it has none. Throws c10::ValueError for a device that does
/// not exist, and for several processes on CUDA without NCCL. The message is one line that names the
/// variable, the rank and what to do.
at::Device choose_device(const at::Device& wanted, const Environment& environment, const Devices& devices);

/// Identifies a device among those of all machines, in one word: "cpu", or "cuda/" followed by the boot id of
/// the machine and the address of the device in it.
std::string place_of(const at::Device& device);

/// Throws c10::ValueError unless all processes work on the CPU, or each on a CUDA device of its own. places:
/// the results of place_of, by rank; members: descriptions such as "rank 2 (host node7, process 4711)".
void check_places(const std::vector<std::string>& places, const std::vector<std::string>& members);

}  // namespace attentive::distributed
