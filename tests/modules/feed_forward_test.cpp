#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/modules/feed_forward.h>

#include "support/compare.h"
#include "support/message.h"
#include "support/module_suite.h"

using namespace attentive;
using attentive::test::value_error;

TEST_CASE("FeedForward is linear, GELU by tanh, linear", "[feed_forward]") {
  FeedForward ff(6);
  const auto state = ff->named_parameters();
  const auto x = at::randn({2, 3, 6});
  const auto h = at::linear(x, state["layers.0.weight"], state["layers.0.bias"]);
  const auto gelu = 0.5 * h * (1 + (std::sqrt(2 / M_PI) * (h + 0.044715 * h.pow(3))).tanh());
  CHECK_WITHIN(ff->forward(x), at::linear(gelu, state["layers.2.weight"], state["layers.2.bias"]),
               {1e-5, 2e-6});
  CHECK(state["layers.0.weight"].sizes() == at::IntArrayRef({24, 6}));
  CHECK(value_error([&] {
          return ff->forward(at::randn({2, 3, 5}));
        }) == "FeedForward: expected x of shape (B, T, 6) or (T, 6), got (2, 3, 5)");
  CHECK(value_error([] { return FeedForward(FeedForwardOptions(6).hidden_dim(0)); }) ==
        "FeedForward: expected hidden_dim > 0, got 0");
}

TEST_CASE("FeedForward is a torch::nn citizen", "[feed_forward]") {
  test::ModuleSuite<FeedForward> suite;
  suite.make = [] { return FeedForward(FeedForwardOptions(6).hidden_dim(10)); };
  suite.input_shape = {2, 5, 6};
  suite.keys = {"layers.0.weight", "layers.0.bias", "layers.2.weight", "layers.2.bias"};
  suite.has_dropout = false;
  suite.run();
}
