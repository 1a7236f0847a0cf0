#include "distributed/environment.h"

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/cuda.h>

#include "distributed/c10d_internals.h"

namespace attentive::distributed {
namespace {

constexpr const char* kRemedy = "start the program with torchrun, or set it as torchrun does";

const char* text_of(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

int64_t number(const char* name, const char* text, int64_t least, int64_t most) {
  int64_t value = 0;
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, value);
  TORCH_CHECK_VALUE(error == std::errc() && stop == end && value >= least && value <= most,
                    "Group::join: expected a number from ", least, " to ", most, " in ", name, ", got \"",
                    text, "\"; ", kRemedy);
  return value;
}

// Reads a variable that is required because another one, `given`, is set.
const char* required(const char* name, const char* given) {
  const char* text = text_of(name);
  TORCH_CHECK_VALUE(text != nullptr, "Group::join: ", given, " is set, but ", name, " is not; ", kRemedy,
                    ", or unset RANK and WORLD_SIZE to run one process");
  return text;
}

constexpr const char* kOnCpu = ", or work on the CPU (GroupOptions::device = at::kCPU)";

// The address of a device: the text after the last slash of its place.
std::string address_in(const std::string& place) {
  return place.substr(place.rfind('/') + 1);
}

}  // namespace

std::string Environment::store() const {
  return fmt::format("MASTER_ADDR:MASTER_PORT {}:{}", master_address, master_port);
}

Environment read_environment() {
  Environment environment;
  const char* rank = text_of("RANK");
  const char* size = text_of("WORLD_SIZE");
  if (rank == nullptr && size == nullptr) return environment;
  rank = required("RANK", "WORLD_SIZE");
  size = required("WORLD_SIZE", "RANK");

  environment.size = number("WORLD_SIZE", size, 1, std::numeric_limits<int32_t>::max());
  environment.rank = number("RANK", rank, 0, std::numeric_limits<int32_t>::max());
  TORCH_CHECK_VALUE(environment.rank < environment.size, "Group::join: RANK is ", environment.rank,
                    ", but WORLD_SIZE ", environment.size, " leaves ranks 0 to ", environment.size - 1, "; ",
                    kRemedy);
  if (const char* local = text_of("LOCAL_RANK")) {
    environment.local_rank = number("LOCAL_RANK", local, 0, std::numeric_limits<int32_t>::max());
    TORCH_CHECK_VALUE(environment.local_rank < environment.size, "Group::join: LOCAL_RANK of rank ",
                      environment.rank, " is ", environment.local_rank, ", but there are ", environment.size,
                      " processes (WORLD_SIZE); ", kRemedy);
  }
  if (environment.alone()) return environment;

  environment.master_address = required("MASTER_ADDR", "RANK");
  environment.master_port = static_cast<uint16_t>(
      number("MASTER_PORT", required("MASTER_PORT", "RANK"), 1, std::numeric_limits<uint16_t>::max()));
  const char* agent = text_of("TORCHELASTIC_USE_AGENT_STORE");
  environment.agent_serves = agent != nullptr && std::string(agent) == "True";
  if (const char* restarts = text_of("TORCHELASTIC_RESTART_COUNT")) {
    environment.restarts =
        number("TORCHELASTIC_RESTART_COUNT", restarts, 0, std::numeric_limits<int32_t>::max());
  }
  return environment;
}

Devices devices_here() {
  return {static_cast<int64_t>(torch::cuda::device_count()), c10d_internals::nccl_lack()};
}

at::Device choose_device(const at::Device& wanted, const Environment& environment, const Devices& devices) {
  if (wanted.is_cpu()) return at::kCPU;
  TORCH_CHECK_VALUE(wanted.is_cuda(),
                    "Group::join: expected GroupOptions::device at::kCPU or at::kCUDA, got ", wanted);
  const auto rank = c10::str("rank ", environment.rank, " of ", environment.size);
  TORCH_CHECK_VALUE(environment.alone() || devices.nccl_lack.empty(), "Group::join: ", rank,
                    " cannot send tensors on CUDA: ", devices.nccl_lack, kOnCpu);
  TORCH_CHECK_VALUE(devices.seen > 0, "Group::join: ", rank,
                    " wants CUDA, but LibTorch sees no device; check the driver (nvidia-smi) and "
                    "CUDA_VISIBLE_DEVICES",
                    kOnCpu);
  const int64_t index = wanted.has_index() ? wanted.index() : environment.local_rank;
  TORCH_CHECK_VALUE(index < devices.seen, "Group::join: ", rank,
                    wanted.has_index() ? " has the GroupOptions::device index " : " has LOCAL_RANK ", index,
                    ", but LibTorch sees ", devices.seen,
                    devices.seen == 1 ? " CUDA device" : " CUDA devices",
                    "; start at most so many processes on a machine (torchrun --nproc-per-node ",
                    devices.seen, "), or name the device's index in GroupOptions::device");
  return {at::kCUDA, static_cast<c10::DeviceIndex>(index)};
}

std::string place_of(const at::Device& device) {
  if (device.is_cpu()) return "cpu";
  std::string boot = "?";  // the same in all containers of a machine, unlike the host name
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return "cuda/" + boot + "/" + c10d_internals::nccl_address(device);
}

void check_places(const std::vector<std::string>& places, const std::vector<std::string>& members) {
  for (size_t i = 1; i < places.size(); ++i) {
    const bool cpu = places[i] == "cpu", first_cpu = places[0] == "cpu";
    TORCH_CHECK_VALUE(cpu == first_cpu, "Group::join: ", members[0], " works on ",
                      first_cpu ? "the CPU" : "CUDA", ", but ", members[i], " on ", cpu ? "the CPU" : "CUDA",
                      "; give all processes the same kind of GroupOptions::device");
    for (size_t j = 0; j < i && !cpu; ++j) {
      TORCH_CHECK_VALUE(places[i] != places[j], "Group::join: ", members[j], " and ", members[i],
                        " share the CUDA device ", address_in(places[i]),
                        "; give each process of a machine its own LOCAL_RANK, from 0, or its own "
                        "GroupOptions::device");
    }
  }
}

}  // namespace attentive::distributed
