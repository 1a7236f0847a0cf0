// The switch, the guard and the report.

#include <thread>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <catch2/catch_test_macros.hpp>

#include "accelerate/sdpa_call.h"
#include "accelerate/sdpa_calls.h"

using namespace attentive;
using namespace attentive::test;
using accelerate::EverySizeGuard;

TEST_CASE("guards nest and give back what was set", "[accelerate]") {
  using accelerate::sdpa_switch;
  using accelerate::Switch;
  stop_accelerating_sdpa();
  {
    const SdpaGuard guard;
    CHECK(sdpa_switch() == Switch::OurDropout);
    {
      const SdpaGuard exact({.dropout = SdpaDropout::Exact});
      CHECK(sdpa_switch() == Switch::ExactDropout);
      {
        const SdpaGuard inner;
        CHECK(sdpa_switch() == Switch::OurDropout);
        stop_accelerating_sdpa();
        CHECK_FALSE(accelerates_sdpa());
      }
      CHECK(sdpa_switch() == Switch::ExactDropout);
      CHECK(accelerates_sdpa());
    }
    CHECK(sdpa_switch() == Switch::OurDropout);
  }
  CHECK_FALSE(accelerates_sdpa());
  accelerate_sdpa({.dropout = SdpaDropout::Exact});
  CHECK(sdpa_switch() == Switch::ExactDropout);
  accelerate_sdpa();
  CHECK(sdpa_switch() == Switch::OurDropout);
  stop_accelerating_sdpa();
}

TEST_CASE("nothing is counted while acceleration is off", "[accelerate]") {
  const EverySizeGuard every_size;
  { const SdpaGuard guard; }
  reset_sdpa_report();
  run(random_call("off"));
  CHECK(sdpa_report().taken == 0);
  CHECK(sdpa_report().left.empty());
}

TEST_CASE("the report counts each call once, from several threads", "[accelerate]") {
  const EverySizeGuard every_size;
  const SdpaGuard guard;
  reset_sdpa_report();
  constexpr int kThreads = 4, kCalls = 25;
  const auto good = random_call("good");
  const auto wide = cast(good, at::kDouble);
  auto without = good;
  without.dropout_p = 1.0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      const at::NoGradGuard no_grad;
      for (int n = 0; n < kCalls; ++n) {
        sdpa(good);
        sdpa(wide);
        sdpa(wide);
        sdpa(without);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(to_string(sdpa_report()) ==
        "      100 taken\n      300 left to PyTorch\n"
        "      200   it accepts only float32, bfloat16 and float16\n"
        "      100   a dropout of 1 leaves nothing to compute\n");
  reset_sdpa_report();
  CHECK(to_string(sdpa_report()) == "        0 taken\n        0 left to PyTorch\n");
}

TEST_CASE("a call that PyTorch hands on to its fused operator counts as taken", "[accelerate]") {
  using namespace accelerate;
  reset_sdpa_report();
  {
    const LeavingCall outer("outer");
    count_left("inside");  // it belongs to the call that is being left
    count_taken();
  }
  CHECK(sdpa_report().taken == 1);
  CHECK(sdpa_report().left.empty());
  { const LeavingCall alone("alone"); }
  REQUIRE(sdpa_report().left.size() == 1);
  CHECK(sdpa_report().left[0].reason == "alone");
  reset_sdpa_report();
}
