// Tests that need two processes with a GPU each; skipped elsewhere. tools/gpu_check runs them.

#include <csignal>
#include <string>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "distributed/launch.h"

using namespace attentive::test;
using Catch::Matchers::ContainsSubstring;

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
    Processes processes;
    start_workers(processes, {"train_for_ever", "60"}, 2, "cuda");
    for (size_t rank = 0; rank < 2; ++rank) REQUIRE(processes.wait_for_text(rank, "started"));
    processes.send_signal(victim, SIGKILL);
    const auto survivor = processes.finish()[1 - victim];
    INFO(survivor.out);
    CHECK(survivor.status == 1);
    CHECK_THAT(survivor.out, ContainsSubstring("peer error, rank -1: "));
  }
}

TEST_CASE("on two GPUs: two processes do not share one", "[distributed][errors][cuda]") {
  need_two_gpus();
  Processes processes;
  const auto port = free_port();
  for (int64_t rank = 0; rank < 2; ++rank) {
    auto variables = place(rank, 2, port);
    variables.emplace_back("ATTENTIVE_TEST_DEVICE", "cuda:0");
    processes.start({worker(), "join", "30"}, variables);
  }
  for (const auto& ended : processes.finish()) {
    INFO(ended.out);
    CHECK(ended.status == 1);
    CHECK_THAT(ended.out, ContainsSubstring("share the CUDA device "));
  }
}
