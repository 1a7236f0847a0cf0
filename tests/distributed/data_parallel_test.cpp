#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <torch/nn/modules/linear.h>

#include <attentive/distributed/data_parallel.h>

#include "distributed/launch.h"

using attentive::test::numbers_in;
using attentive::test::run_workers;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("DataParallel: gradients are the mean over the processes", "[distributed][compared]") {
  for (const int64_t size : {1, 2, 3, 4}) {
    for (const auto& ended : run_workers({"mean"}, size)) {
      INFO(ended.out);
      CHECK(ended.status == 0);
    }
  }
}

TEST_CASE("DataParallel: 2 processes equal one that accumulates, to the bit; more equal each other",
          "[distributed][compared]") {
  const auto one = run_workers({"train", "2"}, 1);
  const auto expected = numbers_in(one[0].out);
  INFO(one[0].out);
  REQUIRE(std::count(expected.begin(), expected.end(), '\n') ==
          56);  // 50 losses, 6 parameters, 2 of them shared
  for (const auto& ended : run_workers({"train", "2"}, 2)) {
    INFO(ended.out);
    CHECK(ended.status == 0);
    CHECK(numbers_in(ended.out) == expected);
  }
  for (const int64_t size : {3, 4}) {
    const auto more = run_workers({"train", std::to_string(size)}, size);
    CHECK(std::count(more[0].out.begin(), more[0].out.end(), '\n') >= 56);
    for (const auto& ended : more) {
      CHECK(ended.status == 0);
      CHECK(numbers_in(ended.out) == numbers_in(more[0].out));
    }
  }
}

TEST_CASE("DataParallel: checkpointed layers, of which two share a weight, change no bit",
          "[distributed][compared]") {
  for (const auto& [size, parts] : {std::pair{1, "2"}, {2, "2"}, {2, "4"}, {3, "3"}}) {
    const auto want = numbers_in(run_workers({"train", parts}, size)[0].out);
    for (const auto& ended : run_workers({"train_checkpointed", parts}, size)) {
      INFO("processes: " << size << "\n" << ended.out);
      CHECK(ended.status == 0);
      CHECK(numbers_in(ended.out) == want);
    }
  }
}

TEST_CASE("DataParallel: the first backward pass and every later one give the same bits",
          "[distributed][compared]") {
  for (const int64_t size : {1, 2, 3, 4}) {
    for (const auto& ended : run_workers({"check_calls", "same_gradients"}, size)) {
      INFO("processes: " << size << "\n" << ended.out);
      CHECK(ended.status == 0);
    }
  }
}

TEST_CASE("DataParallel sends each bucket once a step, while the backward pass runs", "[distributed]") {
  // Without accumulation, and with two parts per process, of which the first sends nothing.
  for (const int64_t size : {2, 3}) {
    for (const int64_t parts : {size, 2 * size}) {
      const auto all = run_workers({"train", std::to_string(parts)}, size);
      CHECK_THAT(all[0].out, ContainsSubstring("parameters 4 buckets 2 collectives 2 overlap 1"));
      for (const auto& ended : all) CHECK(numbers_in(ended.out) == numbers_in(all[0].out));
    }
  }
}

TEST_CASE("DataParallel sends nothing for a part before the last", "[distributed]") {
  for (const int64_t size : {2, 3}) {
    for (const auto& ended : run_workers({"first_part_alone"}, size)) {
      INFO(ended.out);
      CHECK(ended.status == 0);
    }
  }
}

TEST_CASE("ShardedAdamW equals AdamW over processes, to the bit", "[distributed][sharded_adamw][compared]") {
  for (const int64_t size : {2, 3, 4}) {
    const auto plain = run_workers({"optimize", "plain"}, size);
    const auto expected = numbers_in(plain[0].out);
    INFO(plain[0].out);
    // 6 parameters, 2 of them shared; two moments for each of 4, and the step.
    REQUIRE(std::count(expected.begin(), expected.end(), '\n') == 6 + 8 + 1);
    for (const auto& ended : run_workers({"optimize", "sharded"}, size)) {
      INFO(ended.out);
      CHECK(ended.status == 0);
      CHECK(numbers_in(ended.out) == expected);
    }
  }
}

TEST_CASE("DataParallel leaves frozen parameters out", "[distributed]") {
  for (const auto& [size, parts] : {std::pair{2, "4"}, {3, "3"}}) {
    const auto all = run_workers({"train_frozen", parts}, size);
    for (const auto& ended : all) {
      INFO(ended.out);
      CHECK(ended.status == 0);
      CHECK(numbers_in(ended.out) == numbers_in(all[0].out));
    }
    CHECK_THAT(all[0].out, ContainsSubstring("parameters 3 "));
  }
}

TEST_CASE("DataParallel names a parameter without a gradient at once, on all ranks", "[distributed]") {
  for (const std::string from : {"0", "2"}) {
    for (const auto& ended : run_workers({"unused", from}, 3)) {
      INFO(ended.out);
      CHECK(ended.status == 1);
      CHECK_THAT(ended.out, ContainsSubstring("error: DataParallel::backward: on rank 1: the parameter "
                                              "second.weight gets no gradient"));
    }
  }
}

TEST_CASE("DataParallel refuses models that differ on all ranks, and names the first difference",
          "[distributed]") {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"shape",
       "rank 0 has parameter first.weight Float [8, 6], requires a gradient, rank 1 has parameter "
       "first.weight Float [8, 7]"},
      {"dtype",
       "rank 0 has parameter first.weight Float [8, 6], requires a gradient, rank 1 has parameter "
       "first.weight Double [8, 6]"},
      {"frozen",
       "rank 0 has parameter first.bias Float [8], requires a gradient, rank 1 has parameter first.bias "
       "Float [8]"},
      {"more", "rank 1 has parameter more Float [2]"},
      {"name", "rank 0 has the model: Network, rank 1 has buffer other Float [2]"},
      {"device", "rank 0 has buffer place Float [2], rank 1 has buffer place Float [2] on another device"}};
  for (const auto& [what, line] : cases) {
    for (const auto& ended : run_workers({"differ", what}, 3)) {
      INFO(what << ": " << ended.out);
      CHECK(ended.status == 1);
      CHECK_THAT(ended.out,
                 ContainsSubstring("DataParallel: the models differ: ") && ContainsSubstring(line));
    }
  }
}

TEST_CASE("DataParallel refuses a model that is not where the group is", "[distributed][errors]") {
  for (const auto& ended : run_workers({"differ", "elsewhere"}, 3)) {
    INFO(ended.out);
    CHECK(ended.status == 1);
    CHECK_THAT(ended.out,
               ContainsSubstring("DataParallel: expected a model on the CPU, the group's device, got a "
                                 "tensor on meta; move the model there: to(group->device())"));
  }
}

TEST_CASE("DataParallel: sizes that are not positive, and no group", "[distributed]") {
  torch::nn::Linear model(2, 1);
  const auto group = attentive::Group::join();
  using attentive::DataParallel;
  CHECK_THROWS_AS(DataParallel(*model, group, {.bucket_bytes = 0}), c10::ValueError);
  CHECK_THROWS_AS(DataParallel(*model, group, {.first_bucket_bytes = -1}), c10::ValueError);
  CHECK_THROWS_AS(DataParallel(*model, nullptr), c10::ValueError);
}
