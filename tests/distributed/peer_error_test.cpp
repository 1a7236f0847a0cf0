#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <random>
#include <regex>
#include <string>
#include <thread>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <nlohmann/json.hpp>

#include <attentive/distributed/group.h>

#include "distributed/launch.h"

using attentive::test::Ended;
using attentive::test::Processes;
using attentive::test::start_workers;
using Catch::Matchers::ContainsSubstring;

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
  Processes groups[2];
  for (auto& processes : groups) start_workers(processes, {"train_for_ever", "20"}, 3);
  for (size_t victim = 0; victim < 2; ++victim) {
    for (size_t rank = 0; rank < 3; ++rank) REQUIRE(groups[victim].wait_for_text(rank, "started"));
    groups[victim].send_signal(victim, SIGSTOP);
  }
  for (size_t victim = 0; victim < 2; ++victim) {
    const auto all = groups[victim].finish({victim});
    for (size_t rank = 0; rank < 3; ++rank) {
      if (rank != victim) check_survivor(all[rank]);
    }
  }
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
  processes.start({attentive::test::worker(), "join", "3"}, variables);
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
