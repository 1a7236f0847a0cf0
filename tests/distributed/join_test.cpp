// Group::join and the store: what answers at its address, who serves it, and who learns of its end.

#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "distributed/c10d_backends.h"
#include "distributed/launch.h"

using attentive::c10d_internals::open_store;
using attentive::test::ForeignServer;
using attentive::test::Processes;
using Catch::Matchers::ContainsSubstring;
using Manner = attentive::test::ForeignServer::Manner;

namespace {

constexpr std::chrono::milliseconds kLong = std::chrono::hours(24);

Processes::Variables under_an_agent(int64_t rank, int64_t size, uint16_t port) {
  auto variables = attentive::test::place(rank, size, port);
  variables.emplace_back("TORCHELASTIC_USE_AGENT_STORE", "True");
  return variables;
}

}  // namespace

TEST_CASE("Group::join ends, and says what stands in the place of the store", "[distributed][errors]") {
  struct Case {
    ForeignServer server;
    int64_t size;
    std::string line;
    Processes processes;
    Case(Manner manner, int64_t processes_of_job, std::string said)
        : server(manner), size(processes_of_job), line(std::move(said)) {}
  };
  attentive::test::with_patience([](int64_t seconds) -> std::string {
    const auto timeout = std::to_string(seconds);
    const std::string unreached = " has not reached rank 0 at MASTER_ADDR:MASTER_PORT 127.0.0.1:",
                      within = " within " + timeout +
                               " s: no store has answered there; start rank 0, check both variables",
                      lost = " has lost the store at MASTER_ADDR:MASTER_PORT 127.0.0.1:",
                      silent = ": it does not answer; see what rank 0 has printed, or check both variables";
    std::vector<std::unique_ptr<Case>> cases;
    const auto add = [&](Manner manner, int64_t size, const std::string& line) {
      auto& added = *cases.emplace_back(std::make_unique<Case>(manner, size, line));
      for (int64_t rank = 1; rank < size; ++rank)
        added.processes.start({attentive::test::worker(), "join", timeout},
                              attentive::test::place(rank, size, added.server.port()));
    };
    add(Manner::Silent, 4, unreached);
    add(Manner::Silent, 2, within);
    add(Manner::Drips, 3, unreached);
    add(Manner::Resets, 2, unreached);
    add(Manner::Babbles, 3, unreached);
    add(Manner::StopsMidway, 3, lost);
    add(Manner::StopsMidway, 2, silent);
    add(Manner::GoesMidway, 2, lost);
    for (auto& one : cases) {
      const auto all = one->processes.finish();
      if (one->server.guests() == 0) return "no process has come to the server";
      for (size_t i = 0; i < all.size(); ++i) {
        const bool midway = one->line == lost || one->line == silent;
        if (midway && all[i].out.find(unreached) != std::string::npos) return all[i].out;
        INFO(one->line << ", rank " << i + 1 << ": " << all[i].out);
        CHECK(all[i].status == 1);
        CHECK_THAT(all[i].out, ContainsSubstring("error: Group::join: rank " + std::to_string(i + 1) +
                                                 " of " + std::to_string(one->size)) &&
                                   ContainsSubstring(one->line));
        CHECK(all[i].lines() == 1);
      }
    }
    return "";
  });
}

TEST_CASE("Group::join waits for a store that comes later", "[distributed]") {
  const auto port = attentive::test::free_port();
  Processes processes;
  for (int64_t rank = 1; rank < 4; ++rank)
    processes.start({attentive::test::worker(), "calls"}, attentive::test::place(rank, 4, port));
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  processes.start({attentive::test::worker(), "calls"}, attentive::test::place(0, 4, port));
  for (const auto& ended : processes.finish()) {
    INFO(ended.out);
    CHECK(ended.status == 0);
    CHECK(ended.out.empty());
  }
}

TEST_CASE("Group::join: a store that torchrun's agent serves", "[distributed]") {
  for (const int64_t size : {2, 3, 4}) {
    const auto port = attentive::test::free_port();
    const auto store = open_store("127.0.0.1", port, "agent", true, kLong);
    Processes processes;
    for (int64_t rank = 0; rank < size; ++rank)
      processes.start({attentive::test::worker(), "calls"}, under_an_agent(rank, size, port));
    for (const auto& ended : processes.finish()) {
      INFO(ended.out);
      CHECK(ended.status == 0);
      CHECK(ended.out.empty());
    }
  }
  const ForeignServer server(Manner::Silent);
  Processes processes;
  processes.start({attentive::test::worker(), "join", "3"}, under_an_agent(0, 2, server.port()));
  CHECK_THAT(processes.finish()[0].out,
             ContainsSubstring("rank 0 of 2 has not reached torchrun's store at "));
}

TEST_CASE("Group::join: rank 0 goes while the others wait for the last", "[distributed][faults]") {
  const auto port = attentive::test::free_port();
  Processes processes;
  for (int64_t rank = 0; rank < 3; ++rank)
    processes.start({attentive::test::worker(), "join"}, attentive::test::place(rank, 4, port));
  // Once the names of ranks 1 and 2 are in the store, both have joined and wait for rank 3.
  const auto store = open_store("127.0.0.1", port, "attentive/0/0/1", false, kLong);
  store->wait({"member/1", "member/2"}, kLong);
  processes.send_signal(0, SIGKILL);
  const auto all = processes.finish();
  for (size_t rank = 1; rank < 3; ++rank) {
    INFO(all[rank].out);
    CHECK(all[rank].status == 1);
    CHECK_THAT(all[rank].out,
               ContainsSubstring("rank " + std::to_string(rank) + " of 4 has lost the store at MASTER_ADDR"));
    CHECK(all[rank].lines() == 1);
  }
}

TEST_CASE("a group leaves SIGPIPE to the program", "[distributed][faults]") {
  for (int run = 0; run < 4; ++run) {
    Processes processes;
    attentive::test::start_workers(processes, {"train_for_ever"}, 3);
    for (size_t rank = 0; rank < 3; ++rank) REQUIRE(processes.wait_for_text(rank, "started"));
    std::this_thread::sleep_for(std::chrono::milliseconds(50 * run));
    processes.send_signal(1, SIGPIPE);
    CHECK(processes.finish()[1].signal == SIGPIPE);
  }
}

TEST_CASE("GroupOptions::exit_at_once: who ends without the handlers of exit", "[distributed][faults]") {
  for (const std::string exit_kind : {"at once", "whole"}) {
    Processes processes;
    const auto port = attentive::test::free_port();
    for (int64_t rank = 0; rank < 3; ++rank) {
      auto variables = attentive::test::place(rank, 3, port);
      variables.emplace_back("ATTENTIVE_TEST_EXIT", exit_kind);
      processes.start({attentive::test::worker(), "leave"}, variables);
    }
    const auto all = processes.finish();
    for (const size_t rank : {0U, 2U}) {
      INFO(exit_kind << ", rank " << rank << ": " << all[rank].out);
      CHECK(all[rank].status == 1);
      CHECK((all[rank].out.find("handler of exit") != std::string::npos) == (exit_kind == "whole"));
    }
    CHECK_THAT(all[1].out, ContainsSubstring("handler of exit"));  // it has ended normally
  }
}
