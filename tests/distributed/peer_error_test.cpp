#include <chrono>
#include <csignal>
#include <cstdio>
#include <dlfcn.h>
#include <fstream>
#include <iterator>
#include <random>
#include <regex>
#include <stdexcept>
#include <string>
#include <thread>

#include <ATen/Parallel.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <nlohmann/json.hpp>

#include <attentive/distributed/peer_error.h>

#include "distributed/failure_detector.h"
#include "distributed/launch.h"
#include "support/file_bytes.h"

using attentive::test::Ended;
using attentive::test::Processes;
using attentive::test::start_workers;
using Catch::Matchers::ContainsSubstring;
using Clock = std::chrono::steady_clock;

namespace {

// Checks that the survivors have ended by themselves, each with one error line that names the rank.
void check_survivors(const std::vector<Ended>& all, size_t victim, Clock::time_point since,
                     std::chrono::seconds limit) {
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (rank == victim) continue;
    INFO("rank " << rank << ": " << all[rank].out);
    CHECK(all[rank].signal == 0);
    CHECK(all[rank].status == 1);
    CHECK(all[rank].when - since <= limit);  // the documented limit
    // "started", and the error; in rank 0, c10d's server of the store may print something when another
    // process ends.
    if (victim == 0 || rank != 0) CHECK(all[rank].lines() == 2);
    const std::regex line("error: [^\n]*: rank " + std::to_string(victim) + " \\([^\n]*\n");
    const std::string out = all[rank].out;
    CHECK(std::distance(std::sregex_iterator(out.begin(), out.end(), line), std::sregex_iterator()) == 1);
  }
}

}  // namespace

TEST_CASE("PeerError: a killed process ends the others within 2 s, at any moment",
          "[distributed][faults][alone]") {
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
    const auto since = Clock::now();
    processes.send_signal(victim, SIGKILL);
    const auto all = processes.finish();
    CHECK(all[victim].signal == SIGKILL);
    check_survivors(all, victim, since, std::chrono::seconds(2));
  }
}

TEST_CASE("PeerError: a stopped process ends the others within the timeout and 2 s",
          "[distributed][faults][alone]") {
  for (const size_t victim : {0U, 1U}) {
    Processes processes;
    start_workers(processes, {"train_for_ever"}, 3);
    for (size_t rank = 0; rank < 3; ++rank) REQUIRE(processes.wait_for_text(rank, "started"));
    const auto since = Clock::now();
    processes.send_signal(victim, SIGSTOP);
    check_survivors(processes.finish({victim}), victim, since, std::chrono::seconds(3 + 2));
  }
}

TEST_CASE("PeerError quotes the exception that ended a process", "[distributed][faults]") {
  for (const size_t thrower : {0U, 2U}) {
    const auto all = attentive::test::run_workers({"throw", std::to_string(thrower)}, 3);
    for (size_t rank = 0; rank < 3; ++rank) {
      INFO("rank " << rank << ": " << all[rank].out);
      CHECK(all[rank].status == 1);
      CHECK_THAT(all[rank].out, ContainsSubstring("the data are gone"));
      if (rank != thrower)
        CHECK_THAT(all[rank].out, ContainsSubstring(": rank " + std::to_string(thrower) + " (host "));
    }
  }
}

TEST_CASE("PeerError names a process that has left", "[distributed][faults]") {
  const auto all = attentive::test::run_workers({"leave"}, 3);
  CHECK(all[1].status == 0);
  for (const size_t rank : {0U, 2U}) {
    INFO(all[rank].out);
    CHECK(all[rank].status == 1);
    CHECK_THAT(all[rank].out,
               ContainsSubstring("Group::barrier: rank 1 (host ") && ContainsSubstring("has left the group"));
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

TEST_CASE("a timeout is recognised by the words of LibTorch 2.11 and 2.15", "[distributed]") {
  for (const std::string message : {
           "[../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 3000ms for recv "
           "operation",
           "[../third_party/gloo/gloo/transport/tcp/pair.cc:553] Application timeout caused pair closure",
           "Operation timed out!",
           "WorkNCCL(SeqNum=4, OpType=ALLREDUCE, Timeout(ms)=15000) ran for 15012 milliseconds before timing "
           "out.",
       }) {
    INFO(message);
    CHECK(attentive::distributed::is_timeout(message));
  }
  for (const std::string message :
       {"Connection closed by peer [127.0.0.1]:4711", "Connection reset by peer", ""}) {
    INFO(message);
    CHECK_FALSE(attentive::distributed::is_timeout(message));
  }
  // The words of Gloo and c10d are those of the LibTorch at hand.
  Dl_info library{};
  REQUIRE(dladdr(reinterpret_cast<const void*>(&at::get_num_threads), &library) != 0);
  const auto bytes = attentive::test::read_bytes(library.dli_fname);
  for (const char* words :
       {"Timed out waiting ", "Application timeout caused pair closure", "Operation timed out!"}) {
    INFO(words);
    CHECK(bytes.find(words) != std::string::npos);
  }
}

TEST_CASE("PeerError is one line", "[distributed]") {
  const attentive::PeerError error("Group::barrier: rank 2 is gone", 2);
  CHECK(std::string(error.what()) == "Group::barrier: rank 2 is gone");
  CHECK(error.rank() == 2);
}
