#include "distributed/device_choice.h"

#include <fstream>

#include <c10/util/Exception.h>
#include <torch/cuda.h>

#include "distributed/nccl_backend.h"

namespace attentive::distributed {
namespace {

constexpr const char* kOnCpu = ", or work on the CPU (GroupOptions::device = at::kCPU)";

// The address of a device: the text after the last slash of its place.
std::string address_in(const std::string& place) {
  return place.substr(place.rfind('/') + 1);
}

}  // namespace

Devices devices_here() {
  const auto* nccl = c10d_internals::nccl();
  return {static_cast<int64_t>(torch::cuda::device_count()),
          nccl != nullptr ? nccl->lack() : "this build has no NCCL; configure it with -DATTENTIVE_NCCL=ON"};
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
  return "cuda/" + boot + "/" + c10d_internals::nccl()->address(device);
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
