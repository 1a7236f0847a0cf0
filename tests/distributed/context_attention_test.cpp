#include <csignal>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include "distributed/launch.h"

using namespace attentive::test;

namespace {

void check_scenario(const std::string& what, const std::string& method, int64_t size) {
  INFO(what << " " << method << ", processes: " << size);
  for (const auto& ended : run_workers({"context", what, method}, size)) {
    INFO(ended.out);
    CHECK(ended.status == 0);
  }
}

}  // namespace

TEST_CASE("attention over several processes equals one process's", "[distributed][context][compared]") {
  for (const int64_t size : {2, 3, 4}) {
    for (const std::string method : {"gather", "heads", "ring"}) {
      if (size == 3 && method == "heads") continue;  // 3 processes cannot share its 8 heads evenly
      check_scenario("same", method, size);
    }
  }
}

TEST_CASE("a GPT over several processes has one process's loss and gradients",
          "[distributed][context][compared]") {
  for (const int64_t size : {2, 3, 4}) {
    for (const std::string method : {"gather", "heads", "ring"}) {
      if (size == 3 && method == "heads") continue;  // 3 processes cannot share its 4 heads evenly
      check_scenario("gpt", method, size);
    }
  }
}

TEST_CASE("what cannot be computed over several processes is refused by all",
          "[distributed][context][errors]") {
  check_scenario("refused", "", 2);
}

TEST_CASE("a second derivative over several processes ends in one error", "[distributed][context][errors]") {
  for (const std::string method : {"gather", "heads", "ring"}) {
    check_scenario("twice", method, method == "heads" ? 4 : 3);
  }
}

TEST_CASE("backward passes in different orders end in PeerError on every process",
          "[distributed][context][errors]") {
  const std::vector<std::pair<std::string, int64_t>> runs{
      {"gather", 2}, {"heads", 2}, {"ring", 2}, {"ring", 3}};
  with_patience([&](int64_t seconds) -> std::string {
    std::vector<Processes> groups(runs.size());
    for (size_t i = 0; i < runs.size(); ++i)
      start_workers(groups[i], {"other_orders", runs[i].first, std::to_string(seconds)}, runs[i].second);
    for (size_t i = 0; i < runs.size(); ++i) {
      for (const auto& ended : groups[i].finish()) {
        if (ended.out.find("error: Group::join: ") != std::string::npos) return ended.out;
        INFO(runs[i].first << ", processes: " << runs[i].second << "\n" << ended.out);
        CHECK(ended.signal == 0);
        CHECK(ended.status == 1);
        CHECK(ended.out.find("peer error, rank -1: context_attention: ") != std::string::npos);
      }
    }
    return "";
  });
}

TEST_CASE("a process that dies in ring attention ends the others", "[distributed][context][faults]") {
  Processes processes;
  start_workers(processes, {"context", "for_ever"}, 3);
  for (size_t rank = 0; rank < 3; ++rank) REQUIRE(processes.wait_for_text(rank, "started"));
  processes.send_signal(1, SIGKILL);
  const auto ended = processes.finish();
  for (const size_t rank : {size_t{0}, size_t{2}}) {
    INFO(ended[rank].out);
    CHECK(ended[rank].status == 1);
    CHECK(ended[rank].out.find("peer error, rank -1: ") != std::string::npos);
  }
}
