// Group::join and the store: what answers at its address, who serves it, and who learns of its end.

#include <chrono>
#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "distributed/c10d_internals.h"
#include "distributed/launch.h"

using attentive::test::ForeignServer;
using attentive::test::Processes;
using Catch::Matchers::ContainsSubstring;
using Manner = attentive::test::ForeignServer::Manner;

namespace {

Processes::Variables under_an_agent(int64_t rank, int64_t size, uint16_t port) {
  auto variables = attentive::test::place(rank, size, port);
  variables.emplace_back("TORCHELASTIC_USE_AGENT_STORE", "True");
  return variables;
}

}  // namespace

// The limit on the duration is the documented one: the timeout and 1 s. A hang ends at the limit of
// Processes.
TEST_CASE("Group::join ends, and says what stands in the place of the store",
          "[distributed][errors][alone]") {
  struct Case {
    Manner manner;
    int64_t size;
    std::string line;
  };
  const auto [manner, size, line] = GENERATE(values<Case>({
      {Manner::Silent, 2, " has not reached rank 0 at MASTER_ADDR:MASTER_PORT 127.0.0.1:"},
      {Manner::Silent, 4, " within 2 s: what listens there does not answer, so that it is something else"},
      {Manner::Drips, 3, " within 2 s: what listens there does not answer, so that it is something else"},
      {Manner::Resets, 2, " within 2 s: what listens there closes the connection, so that it is something"},
      {Manner::Babbles, 3, " has found something else than rank 0 at MASTER_ADDR:MASTER_PORT 127.0.0.1:"},
      {Manner::Babbles, 2, ": what listens there answers as no store does; check both variables"},
      {Manner::StopsMidway, 3, " has lost the store at MASTER_ADDR:MASTER_PORT 127.0.0.1:"},
      {Manner::StopsMidway, 2, ": what listens there does not answer"},
      {Manner::GoesMidway, 2, ": what listens there has closed the connection"},
  }));
  const ForeignServer server(manner);
  Processes processes;
  for (int64_t rank = 1; rank < size; ++rank)
    processes.start({attentive::test::worker(), "join", "2"},
                    attentive::test::place(rank, size, server.port()));
  const auto all = processes.finish();
  for (size_t i = 0; i < all.size(); ++i) {
    INFO(static_cast<int>(manner) << ", rank " << i + 1 << ": " << all[i].out);
    CHECK(all[i].status == 1);
    CHECK_THAT(all[i].out, ContainsSubstring("error: Group::join: rank " + std::to_string(i + 1) + " of " +
                                             std::to_string(size)) &&
                               ContainsSubstring(line));
    CHECK(all[i].lines() == 1);
  }
  // No process waits for a store after something else has answered; a process whose connection is refused
  // tries again.
  if (manner == Manner::Babbles) CHECK(server.guests() == size - 1);
  if (manner == Manner::Resets) CHECK(server.guests() > size - 1);
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
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    const attentive::c10d_internals::KeyStore store({"127.0.0.1", port, ""}, true, end);
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
  processes.start({attentive::test::worker(), "join", "1"}, under_an_agent(0, 2, server.port()));
  CHECK_THAT(processes.finish()[0].out,
             ContainsSubstring("rank 0 of 2 has not reached torchrun's store at "));
}

TEST_CASE("Group::join: rank 0 goes while the others wait for the last", "[distributed][faults]") {
  const auto port = attentive::test::free_port();
  Processes processes;
  for (int64_t rank = 0; rank < 3; ++rank)
    processes.start({attentive::test::worker(), "join", "60"}, attentive::test::place(rank, 4, port));
  // Once the names of ranks 1 and 2 are in the store, both have joined and wait for rank 3.
  attentive::c10d_internals::KeyStore store({"127.0.0.1", port, "attentive/0/0/1/"}, false,
                                            std::chrono::steady_clock::now() + std::chrono::seconds(60));
  for (const char* key : {"member/1", "member/2"}) REQUIRE(store.wait(key, std::chrono::seconds(60)));
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

TEST_CASE("a group leaves SIGPIPE to the program", "[distributed][faults][alone]") {
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
