#include <cmath>

#include <ATen/Context.h>
#include <ATen/Version.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/tensor.h>
#include <catch2/catch_test_macros.hpp>
#include <torch/nn/modules/dropout.h>

#include <attentive/parity/compare.h>
#include <attentive/parity/draws.h>

#include "support/golden.h"

using namespace attentive;

// Said aloud, because it decides what the other tests compared.
TEST_CASE("Rules of this machine", "[draws]") {
  WARN(draw_rule());
  WARN("CPU dropout stream: " << dropout_stream_of_this_cpu());
  CHECK(dropout_stream_of_this_cpu() != "unknown");
}

TEST_CASE("the dropout stream is the one that the layer draws", "[draws]") {
  const test::Golden golden("dropout_of_ones");
  at::manual_seed(golden.seed());
  const auto drawn = torch::nn::Dropout(0.5)->forward(at::ones({6, 6}));
  for (const std::string stream : {"default", "intel_mkl"}) {
    CHECK(bit_equal(drawn, golden[stream]) == (stream == dropout_stream_of_this_cpu()));
  }
}

TEST_CASE("asking for the dropout stream draws nothing from the default generator", "[draws]") {
  at::manual_seed(5);
  const auto expected = at::rand({4});
  at::manual_seed(5);
  dropout_stream_of_this_cpu();
  CHECK(bit_equal(at::rand({4}), expected));
}

TEST_CASE("a draw is the same by its bits, and within 2 ulp without vector kernels", "[draws]") {
  const auto want = at::tensor({1.0f, -0.5f});
  const auto next = [](float x, int steps) {
    for (int i = 0; i < steps; ++i) x = std::nextafter(x, 2.0f);
    return x;
  };
  const bool exact = at::get_cpu_capability() == "AVX2" || at::get_cpu_capability() == "AVX512";
  CHECK(same_draw(want, want.clone()));
  CHECK(same_draw(at::tensor({next(1.0f, 2), -0.5f}), want) != exact);
  CHECK_FALSE(same_draw(at::tensor({next(1.0f, 3), -0.5f}), want));
  CHECK_FALSE(same_draw(want.view({2, 1}), want));
  CHECK_FALSE(same_draw(want.to(at::kDouble), want));
  CHECK((draw_rule().find("bit for bit") != std::string::npos) == exact);
}
