#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "distributed/environment.h"

using attentive::distributed::check_places;
using attentive::distributed::choose_device;
using attentive::distributed::Devices;
using attentive::distributed::Environment;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

namespace {

Environment environment_of(int64_t rank, int64_t size, int64_t local_rank) {
  Environment environment;
  environment.rank = rank;
  environment.size = size;
  environment.local_rank = local_rank;
  return environment;
}

at::Device cuda(int index) {
  return {at::kCUDA, static_cast<c10::DeviceIndex>(index)};
}

}  // namespace

TEST_CASE("a process takes the CPU, the device that is named, or the one of LOCAL_RANK", "[distributed]") {
  const Devices four{4, ""};
  CHECK(choose_device(at::kCPU, environment_of(1, 2, 1), {0, "no NCCL"}) == at::kCPU);
  CHECK(choose_device(at::kCUDA, environment_of(5, 8, 1), four) == cuda(1));
  CHECK(choose_device(cuda(3), environment_of(5, 8, 1), four) == cuda(3));
  CHECK(choose_device(at::kCUDA, environment_of(3, 4, 3), four) == cuda(3));
}

TEST_CASE("a process alone works on CUDA without NCCL", "[distributed]") {
  CHECK(choose_device(at::kCUDA, Environment(), {1, "no NCCL"}) == cuda(0));
}

TEST_CASE("a device that a process cannot have is refused in one line with rank, variable and remedy",
          "[distributed][errors]") {
  const auto refused = [](const at::Device& wanted, const Environment& environment, const Devices& devices,
                          const char* line) {
    CHECK_THROWS_MATCHES(choose_device(wanted, environment, devices), c10::ValueError,
                         MessageMatches(ContainsSubstring(line)));
  };
  refused(at::kCUDA, environment_of(1, 2, 1), {2, "this build has no NCCL"},
          "Group::join: rank 1 of 2 cannot send tensors on CUDA: this build has no NCCL, or work on the CPU");
  refused(at::kCUDA, environment_of(1, 2, 1), {0, ""},
          "Group::join: rank 1 of 2 wants CUDA, but LibTorch sees no device; check the driver (nvidia-smi) "
          "and CUDA_VISIBLE_DEVICES, or work on the CPU");
  refused(at::kCUDA, Environment(), {0, "no NCCL"},
          "Group::join: rank 0 of 1 wants CUDA, but LibTorch sees no device");
  refused(at::kCUDA, environment_of(1, 2, 1), {1, ""},
          "Group::join: rank 1 of 2 has LOCAL_RANK 1, but LibTorch sees 1 CUDA device; start at most so many "
          "processes on a machine (torchrun --nproc-per-node 1)");
  refused(cuda(2), environment_of(1, 2, 1), {2, ""},
          "Group::join: rank 1 of 2 has the GroupOptions::device index 2, but LibTorch sees 2 CUDA devices");
  refused(at::kMeta, environment_of(1, 2, 1), {2, ""},
          "Group::join: expected GroupOptions::device at::kCPU or at::kCUDA, got meta");
}

TEST_CASE("processes work on the CPU, or each on a device of its own", "[distributed][errors]") {
  const std::vector<std::string> members{"rank 0 (host a)", "rank 1 (host a)", "rank 2 (host b)"};
  const auto refused = [&](const std::vector<std::string>& places, const char* line) {
    CHECK_THROWS_MATCHES(check_places(places, members), c10::ValueError,
                         MessageMatches(ContainsSubstring(line)));
  };
  CHECK_NOTHROW(check_places({"cpu", "cpu", "cpu"}, members));
  CHECK_NOTHROW(check_places({"cuda/a/0000:1B:00.0", "cuda/a/0000:2B:00.0", "cuda/b/0000:1B:00.0"}, members));
  refused({"cuda/a/0000:1B:00.0", "cuda/a/0000:2B:00.0", "cuda/a/0000:2B:00.0"},
          "Group::join: rank 1 (host a) and rank 2 (host b) share the CUDA device 0000:2B:00.0; give each "
          "process of a machine its own LOCAL_RANK, from 0");
  refused({"cpu", "cpu", "cuda/a/0000:1B:00.0"},
          "Group::join: rank 0 (host a) works on the CPU, but rank 2 (host b) on CUDA; give all processes");
  refused({"cuda/a/0000:1B:00.0", "cpu", "cpu"},
          "rank 0 (host a) works on CUDA, but rank 1 (host a) on the CPU");
}
