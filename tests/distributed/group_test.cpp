#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <regex>
#include <string>
#include <thread>

#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <nlohmann/json.hpp>
#include <torch/nn/modules/linear.h>

#include <attentive/distributed/group.h>

#include "distributed/c10d_backends.h"
#include "distributed/environment.h"
#include "distributed/launch.h"

using attentive::Group;
using attentive::test::Ended;
using attentive::test::Processes;
using attentive::test::run_workers;
using attentive::test::with_patience;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

namespace {

// Starts one worker that joins with these variables and returns the line with which it fails.
std::string failure_of(const Processes::Variables& variables, const std::string& timeout = "") {
  Processes processes;
  processes.start({attentive::test::worker(), "join", timeout}, variables);
  const auto ended = processes.finish();
  CHECK(ended[0].status == 1);
  return ended[0].out;
}

Processes::Variables changed(const std::string& name, const std::string& text, int64_t size = 2) {
  auto variables = attentive::test::place(0, size, attentive::test::free_port());
  for (auto& variable : variables) {
    if (variable.first == name) variable.second = text;
  }
  return variables;
}

}  // namespace

TEST_CASE("Group: gather, broadcast, sum and barrier over 1 to 4 processes", "[distributed]") {
  for (const int64_t size : {1, 2, 3, 4}) {
    for (const auto& ended : run_workers({"calls"}, size)) {
      INFO(ended.out);
      CHECK(ended.status == 0);
    }
  }
}

TEST_CASE("Calls that differ are refused by all processes, and the group goes on", "[distributed][errors]") {
  for (const std::string what : {"differ", "differ_context"}) {
    for (const int64_t size : {2, 3, 4}) {
      for (const auto& ended : run_workers({"check_calls", what}, size)) {
        INFO(what << ", processes: " << size << "\n" << ended.out);
        CHECK(ended.status == 0);
      }
    }
  }
}

TEST_CASE("Group::sum is exact for every tensor that it takes, and refuses the others by name",
          "[distributed][errors]") {
  for (const int64_t size : {1, 2, 3}) {
    for (const auto& ended : run_workers({"check_calls", "sums"}, size)) {
      INFO("processes: " << size << "\n" << ended.out);
      CHECK(ended.status == 0);
    }
  }
}

TEST_CASE("Group: without RANK and WORLD_SIZE, this process alone", "[distributed]") {
  if (std::getenv("RANK") != nullptr || std::getenv("WORLD_SIZE") != nullptr)
    SKIP("RANK or WORLD_SIZE is set");
  const auto group = Group::join();
  CHECK(group->rank() == 0);
  CHECK(group->size() == 1);
  CHECK(group->device() == at::kCPU);
  const auto x = at::ones({2});
  const auto all = group->gather(x);
  REQUIRE(all.size() == 1);
  CHECK(at::equal(all[0], x));
  group->broadcast(x, 0);
  group->barrier();
  CHECK_THROWS_AS(group->broadcast(x, 1), c10::ValueError);
  CHECK_THROWS_AS(group->gather(at::Tensor()), c10::ValueError);
  CHECK_THROWS_MATCHES(
      group->sum(at::ones({2}, at::kMeta)), c10::ValueError,
      MessageMatches(ContainsSubstring("Group::sum: expected a dense tensor on the CPU, got one on meta")));

  torch::nn::Linear model(2, 1);
  group->average_gradients(*model)->backward(model->forward(x).sum(), true);
  CHECK(at::equal(model->weight.grad(), at::ones({1, 2})));
}

TEST_CASE("Group: options that cannot be met", "[distributed]") {
  CHECK_THROWS_AS(Group::join({.device = at::kMeta}), c10::ValueError);
  CHECK_THROWS_AS(Group::join({.timeout = std::chrono::milliseconds(0)}), c10::ValueError);
}

TEST_CASE("Group: a process alone on CUDA", "[distributed]") {
  if (attentive::distributed::devices_here().seen == 0) {
    CHECK_THROWS_AS(Group::join({.device = at::kCUDA}), c10::ValueError);
    return;
  }
  torch::nn::Linear model(2, 1);
  const auto group = Group::join({.device = at::kCUDA});
  model->to(group->device());
  CHECK(group->device() == at::Device(at::kCUDA, 0));
  CHECK(group->gather(at::ones({2}, group->device()))[0].is_cuda());
  group->average_gradients(*model)->backward(model->weight.sum() + model->bias.sum(), true);
  CHECK(model->weight.grad().is_cuda());
}

TEST_CASE("Group: several processes on CUDA, where that cannot be", "[distributed][errors]") {
  const auto devices = attentive::distributed::devices_here();
  if (devices.nccl_lack.empty() && devices.seen > 0) SKIP("there are CUDA devices and NCCL");
  const auto reason = devices.nccl_lack.empty() ? "wants CUDA, but LibTorch sees no device"
                                                : "cannot send tensors on CUDA: " + devices.nccl_lack;
  const auto all = run_workers({"join"}, 2, "cuda");
  for (size_t rank = 0; rank < 2; ++rank) {
    INFO(all[rank].out);
    CHECK(all[rank].status == 1);
    CHECK_THAT(all[rank].out,
               ContainsSubstring("error: Group::join: rank " + std::to_string(rank) + " of 2 " + reason));
  }
}

TEST_CASE("Group::join names the variable that is missing or wrong, and the remedy", "[distributed]") {
  for (const std::string name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
    const auto out = failure_of(changed(name, ""));
    CHECK_THAT(out, ContainsSubstring(" is set, but " + name + " is not; start the program with torchrun"));
  }
  for (const std::string name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_PORT"}) {
    CHECK_THAT(failure_of(changed(name, "1x")), ContainsSubstring(" in " + name + ", got \"1x\""));
  }
  CHECK_THAT(failure_of(changed("MASTER_PORT", "65536")),
             ContainsSubstring("a number from 1 to 65535 in MASTER_PORT"));
  CHECK_THAT(failure_of(changed("RANK", "-1")),
             ContainsSubstring("a number from 0 to 2147483647 in RANK, got \"-1\""));
  CHECK_THAT(failure_of(changed("RANK", "2")),
             ContainsSubstring("RANK is 2, but WORLD_SIZE 2 leaves ranks 0 to 1"));
  CHECK_THAT(failure_of(changed("LOCAL_RANK", "2")),
             ContainsSubstring("LOCAL_RANK of rank 0 is 2, but there are 2 processes"));
}

TEST_CASE("Group::join names the rank that does not come", "[distributed]") {
  with_patience([](int64_t seconds) -> std::string {
    const auto timeout = std::to_string(seconds), alone = failure_of(changed("RANK", "0", 3), timeout);
    if (alone.find(" has not reached rank 0 ") != std::string::npos ||
        alone.find(" has lost the store ") != std::string::npos)
      return alone;
    CHECK_THAT(alone, ContainsSubstring("rank 0 of 3 has waited " + timeout +
                                        " s in vain for rank 1, 2 at MASTER_ADDR"));
    return "";
  });
  CHECK_THAT(failure_of(changed("RANK", "1"), "3"),
             ContainsSubstring("rank 1 of 2 has not reached rank 0 at MASTER_ADDR:MASTER_PORT 127.0.0.1:"));
}

TEST_CASE("Group::join: a port that is taken, two processes of one rank, other sizes", "[distributed]") {
  const attentive::test::TakenPort taken;
  CHECK_THAT(failure_of(attentive::test::place(0, 2, taken.port())),
             ContainsSubstring("rank 0 cannot serve the store at MASTER_ADDR:MASTER_PORT 127.0.0.1:" +
                               std::to_string(taken.port()) +
                               ": the port is taken; set MASTER_PORT to a free port"));

  const auto other = attentive::test::free_port();
  Processes processes;
  const auto start = [&](int64_t rank) {
    processes.start({attentive::test::worker(), "join"}, attentive::test::place(rank, 3, other));
  };
  start(0);
  start(1);
  const std::chrono::hours long_time(24);
  const auto store =
      attentive::c10d_internals::open_store("127.0.0.1", other, "attentive/0/0/1", false, long_time);
  store->wait({"member/1"}, long_time);
  start(1);
  CHECK_THAT(processes.finish({0, 1})[2].out,
             ContainsSubstring("2 processes of MASTER_ADDR:MASTER_PORT") &&
                 ContainsSubstring("say RANK=1; give each process its own, from 0 to 2"));

  const auto third = attentive::test::free_port();
  Processes sizes;
  sizes.start({attentive::test::worker(), "join"}, attentive::test::place(0, 2, third));
  sizes.start({attentive::test::worker(), "join"}, attentive::test::place(1, 3, third));
  CHECK_THAT(sizes.finish()[0].out,
             ContainsSubstring("rank 0 says WORLD_SIZE=2, but rank 1 says WORLD_SIZE=3"));
}

using attentive::test::start_workers;

namespace {

// Checks that the process has ended by itself, and that its last line is the error of a peer: the function
// that was called and some words of c10d.
void check_survivor(const Ended& ended) {
  INFO(ended.out);
  CHECK(ended.signal == 0);
  CHECK(ended.status == 1);
  static const std::regex line("peer error, rank -1: [A-Za-z]+::[a-z]+: [^\n]+\n$");
  CHECK(std::regex_search(ended.out, line));
}

}  // namespace

TEST_CASE("PeerError: a killed process ends the others, at any moment", "[distributed][faults]") {
  const auto seed = std::random_device()();
  std::mt19937 draws(seed);
  constexpr int64_t size = 3;
  for (int run = 0; run < 10; ++run) {
    const auto victim = static_cast<size_t>(run % size);
    const auto pause = std::chrono::microseconds(draws() % 400'000);
    INFO("seed " << seed << ", run " << run << ", " << pause.count() << " us, victim " << victim);
    Processes processes;
    start_workers(processes, {"train_for_ever"}, size);
    for (size_t rank = 0; rank < size; ++rank) REQUIRE(processes.wait_for_text(rank, "started"));
    std::this_thread::sleep_for(pause);
    processes.send_signal(victim, SIGKILL);
    const auto all = processes.finish();
    CHECK(all[victim].signal == SIGKILL);
    for (size_t rank = 0; rank < size; ++rank) {
      if (rank == victim) continue;
      check_survivor(all[rank]);
      // "started", and the error; in rank 0, c10d's server of the store may print something as well.
      if (rank != 0) CHECK(all[rank].lines() == 2);
    }
  }
}

TEST_CASE("PeerError: a stopped process ends the others after the timeout", "[distributed][faults]") {
  with_patience([](int64_t seconds) -> std::string {
    Processes groups[2];
    for (auto& processes : groups) start_workers(processes, {"train_for_ever", std::to_string(seconds)}, 3);
    for (size_t victim = 0; victim < 2; ++victim) {
      for (size_t rank = 0; rank < 3; ++rank) {
        if (!groups[victim].wait_for_text(rank, "started")) return groups[victim].finish()[rank].out;
      }
      groups[victim].send_signal(victim, SIGSTOP);
    }
    for (size_t victim = 0; victim < 2; ++victim) {
      const auto all = groups[victim].finish({victim});
      for (size_t rank = 0; rank < 3; ++rank) {
        if (rank != victim) check_survivor(all[rank]);
      }
    }
    return "";
  });
}

TEST_CASE("PeerError: the exception of one process ends the others", "[distributed][faults]") {
  for (const size_t thrower : {0U, 2U}) {
    const auto all = attentive::test::run_workers({"throw", std::to_string(thrower)}, 3);
    for (size_t rank = 0; rank < 3; ++rank) {
      if (rank != thrower) check_survivor(all[rank]);
    }
    CHECK(all[thrower].status == 1);
    CHECK_THAT(all[thrower].out, ContainsSubstring("\nerror: the data are gone\n"));
  }
}

TEST_CASE("PeerError: a process that has left ends the others' calls, alike", "[distributed][faults]") {
  const auto all = attentive::test::run_workers({"leave"}, 3);
  CHECK(all[1].status == 0);
  for (const size_t rank : {0U, 2U}) {
    check_survivor(all[rank]);
    CHECK_THAT(all[rank].out, ContainsSubstring("peer error, rank -1: Group::barrier: "));
  }
}

TEST_CASE("report_failure writes torchrun's error file", "[distributed]") {
  const std::string path = "distributed_test_error.json";
  Processes processes;
  auto variables = attentive::test::place(0, 1, 1);
  variables.emplace_back("TORCHELASTIC_ERROR_FILE", path);
  variables[0].second = "x";  // RANK
  processes.start({attentive::test::worker(), "join"}, variables);
  CHECK(processes.finish()[0].status == 1);
  const auto content = nlohmann::json::parse(std::ifstream(path));
  std::remove(path.c_str());
  CHECK_THAT(content.at("message").get<std::string>(), ContainsSubstring("in RANK, got \"x\""));
  CHECK(content.at("timestamp").is_number_integer());
}

TEST_CASE("PeerError is one line of no rank", "[distributed]") {
  const attentive::PeerError error("Group::barrier: Connection closed by peer");
  CHECK(std::string(error.what()) == "Group::barrier: Connection closed by peer");
  CHECK(error.rank() == -1);
}
