#include <ATen/core/grad_mode.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/modules/position_bias.h>

#include "modules/bias_cases.h"
#include "support/compare.h"
#include "support/errors.h"
#include "support/module_suite.h"

using namespace attentive;
using namespace attentive::test;

namespace {

RelativePositionBias2d drawn(int64_t height, int64_t width, int64_t num_heads) {
  RelativePositionBias2d bias(height, width, num_heads);
  const at::NoGradGuard no_grad;
  bias->relative_position_bias_table.normal_();
  return bias;
}

}  // namespace

TEST_CASE("RelativePositionBias2d equals transformers' Swin in value and gradient",
          "[relative_position_bias_2d][bias_cases]") {
  for (const auto& c : bias_cases("swin_bias", 8)) {
    RelativePositionBias2d bias(c.integer("height"), c.integer("width"), c.integer("num_heads"));
    check_bias_case(c, *bias, [&](const CaseTensors&) { return bias->forward(); });
    CHECK(bit_equal(bias->forward(), c.file.expected_output));
  }
}

TEST_CASE("RelativePositionBias2d is a torch::nn citizen", "[relative_position_bias_2d]") {
  ModuleSuite<RelativePositionBias2d> suite;
  suite.make = [] { return drawn(2, 3, 2); };
  suite.input_shape = {2, 6, 6};
  suite.keys = {"relative_position_bias_table"};
  suite.call = [](RelativePositionBias2d& bias, const at::Tensor& x) { return x + bias->forward(); };
  suite.sequential = false;
  suite.has_dropout = false;
  suite.meta = false;  // LibTorch reverses no meta tensor
  suite.run();
}

TEST_CASE("A pair reads the row of its two differences, and the first table is zero",
          "[relative_position_bias_2d]") {
  RelativePositionBias2d fresh(3, 2, 4);
  CHECK(fresh->relative_position_bias_table.sizes() == at::IntArrayRef({15, 4}));
  CHECK(fresh->relative_position_bias_table.eq(0).all().item<bool>());

  constexpr int64_t height = 3, width = 2, tokens = height * width;
  auto bias = drawn(height, width, 4);
  const auto all = bias->forward();
  CHECK(all.sizes() == at::IntArrayRef({4, tokens, tokens}));
  CHECK(all.is_contiguous());
  for (int64_t i = 0; i < tokens; ++i) {
    for (int64_t j = 0; j < tokens; ++j) {
      const auto down = i / width - j / width, across = i % width - j % width;  // query - key
      const auto row = (down + height - 1) * (2 * width - 1) + across + width - 1;
      CHECK(bit_equal(all.select(1, i).select(1, j), bias->relative_position_bias_table[row]));
    }
  }
}

TEST_CASE("RelativePositionBias2d sums the gradients of half types in float32",
          "[relative_position_bias_2d]") {
  RelativePositionBias2d exact(20, 21, 1), half(20, 21, 1);
  half->to(at::kBFloat16);
  exact->forward().sum().backward();
  half->forward().sum().backward();
  CHECK(exact->relative_position_bias_table.grad().max().item<float>() == 420);
  CHECK(bit_equal(half->relative_position_bias_table.grad(),
                  exact->relative_position_bias_table.grad().to(at::kBFloat16)));
}

TEST_CASE("RelativePositionBias2d names what is wrong", "[relative_position_bias_2d][errors]") {
  const auto make = [](const RelativePositionBias2dOptions& options) {
    return value_error([&] { RelativePositionBias2d refused(options); });
  };
  CHECK(make({0, 3, 2}) == "RelativePositionBias2d: expected height in [1, 1048576], got 0");
  CHECK(make({3, -1, 2}) == "RelativePositionBias2d: expected width in [1, 1048576], got -1");
  CHECK(make({3, 3, 0}) == "RelativePositionBias2d: expected num_heads > 0, got 0");
}
