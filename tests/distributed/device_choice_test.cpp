#include <chrono>
#include <csignal>
#include <stdexcept>
#include <string>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "distributed/c10d_backends.h"
#include "distributed/environment.h"
#include "distributed/launch.h"

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

using attentive::c10d_internals::Collectives;
using attentive::c10d_internals::wait_for_device;

namespace {

// A call on a device that completes after some queries.
class Call final : public c10d::Work {
 public:
  explicit Call(int64_t looks, std::exception_ptr error = nullptr) : looks_(looks) {
    exception_ = std::move(error);
  }
  bool isCompleted() override { return looks_-- <= 0; }
  void synchronize() override { synchronized_ = true; }
  bool synchronized() const { return synchronized_; }

 private:
  int64_t looks_;
  bool synchronized_ = false;
};

constexpr int64_t kNever = int64_t{1} << 60;

Collectives::Options options(std::chrono::milliseconds timeout) {
  Collectives::Options made;
  made.device = at::Device(at::kCUDA, 1);
  made.timeout = timeout;
  return made;
}

}  // namespace

TEST_CASE("a call on a device is waited for until it is done", "[distributed]") {
  for (const int64_t looks : {0, 1, 3000}) {
    Call call(looks);
    wait_for_device(call, options(std::chrono::hours(24)));
    CHECK(call.synchronized());
  }
}

TEST_CASE("a call on a device that does not end is late", "[distributed][faults]") {
  Call call(kNever);
  const auto since = std::chrono::steady_clock::now();
  CHECK_THROWS_MATCHES(wait_for_device(call, options(std::chrono::milliseconds(200))), c10::Error,
                       MessageMatches(ContainsSubstring("timed out after 200 ms on cuda:1")));
  CHECK(std::chrono::steady_clock::now() - since >= std::chrono::milliseconds(200));
  CHECK(!call.synchronized());
}

TEST_CASE("the error of a call on a device is thrown", "[distributed][faults]") {
  Call call(1, std::make_exception_ptr(std::runtime_error("remote process has failed")));
  CHECK_THROWS_MATCHES(wait_for_device(call, options(std::chrono::hours(24))), std::runtime_error,
                       MessageMatches(ContainsSubstring("remote process has failed")));
  CHECK(!call.synchronized());
}

// Tests that need two processes with a GPU each; skipped elsewhere. tools/gpu_check runs them.

using namespace attentive::test;

namespace {

void check_both(const std::vector<std::string>& arguments) {
  for (const auto& ended : run_workers(arguments, 2, "cuda")) {
    INFO(ended.out);
    CHECK(ended.status == 0);
  }
}

}  // namespace

TEST_CASE("on two GPUs: gather, broadcast, sum and barrier", "[distributed][cuda]") {
  need_two_gpus();
  check_both({"calls"});
}

TEST_CASE("on two GPUs: gradients are the mean over the processes", "[distributed][cuda]") {
  need_two_gpus();
  check_both({"mean"});
}

TEST_CASE("on two GPUs: processes that train together stay equal to the bit", "[distributed][cuda]") {
  need_two_gpus();
  const auto both = run_workers({"train", "4"}, 2, "cuda");
  INFO(both[0].out << both[1].out);
  CHECK(both[0].status == 0);
  CHECK(both[1].status == 0);
  CHECK_THAT(both[0].out, ContainsSubstring("parameters 4 buckets 2 collectives 2"));
  CHECK(numbers_in(both[0].out) == numbers_in(both[1].out));
}

TEST_CASE("on two GPUs: ShardedAdamW equals AdamW to the bit", "[distributed][cuda]") {
  need_two_gpus();
  const auto plain = run_workers({"optimize", "plain"}, 2, "cuda");
  INFO(plain[0].out);
  REQUIRE(plain[0].status == 0);
  for (const auto& ended : run_workers({"optimize", "sharded"}, 2, "cuda")) {
    INFO(ended.out);
    CHECK(ended.status == 0);
    CHECK(numbers_in(ended.out) == numbers_in(plain[0].out));
  }
}

TEST_CASE("on two GPUs: attention over both equals one's", "[distributed][context][cuda]") {
  need_two_gpus();
  check_both({"context", GENERATE("same", "gpt"), GENERATE("gather", "heads", "ring")});
}

TEST_CASE("on two GPUs: a killed process ends the other", "[distributed][faults][cuda]") {
  need_two_gpus();
  for (const size_t victim : {size_t{0}, size_t{1}}) {
    with_patience([&](int64_t seconds) -> std::string {
      Processes processes;
      start_workers(processes, {"train_for_ever", std::to_string(seconds)}, 2, "cuda");
      for (size_t rank = 0; rank < 2; ++rank) {
        if (!processes.wait_for_text(rank, "started")) return processes.finish()[rank].out;
      }
      processes.send_signal(victim, SIGKILL);
      const auto survivor = processes.finish()[1 - victim];
      INFO(survivor.out);
      CHECK(survivor.status == 1);
      CHECK_THAT(survivor.out, ContainsSubstring("peer error, rank -1: "));
      return "";
    });
  }
}

TEST_CASE("on two GPUs: two processes do not share one", "[distributed][errors][cuda]") {
  need_two_gpus();
  Processes processes;
  const auto port = free_port();
  for (int64_t rank = 0; rank < 2; ++rank) {
    auto variables = place(rank, 2, port);
    variables.emplace_back("ATTENTIVE_TEST_DEVICE", "cuda:0");
    processes.start({worker(), "join"}, variables);
  }
  for (const auto& ended : processes.finish()) {
    INFO(ended.out);
    CHECK(ended.status == 1);
    CHECK_THAT(ended.out, ContainsSubstring("share the CUDA device "));
  }
}
