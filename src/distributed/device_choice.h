#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <c10/core/Device.h>

#include "distributed/environment.h"

/// On which device a process of a group works. What this machine has is an argument, so that every refusal can be tested on any machine.
namespace attentive::distributed {

/// What there is to choose from.
struct Devices {
  int64_t seen = 0;       ///< CUDA devices that LibTorch sees
  std::string nccl_lack;  ///< why there is no communication between them, in words; empty if there is
};
Devices devices_here();

/// `wanted`, with the index LOCAL_RANK if it has none. Throws c10::ValueError, whose line names the variable, the rank and what to do, for
/// a device that is not there, and for several processes on CUDA without NCCL.
at::Device choose_device(const at::Device& wanted, const Environment& environment, const Devices& devices);

/// What tells the device apart from all others, of other machines too, in one word: "cpu", or "cuda/", the boot of the machine and the
/// device's address in it.
std::string place_of(const at::Device& device);

/// Throws c10::ValueError unless all processes work on the CPU, or each on a CUDA device of its own. places: by rank, as place_of says;
/// members: "rank 2 (host node7, process 4711)".
void check_places(const std::vector<std::string>& places, const std::vector<std::string>& members);

}  // namespace attentive::distributed
