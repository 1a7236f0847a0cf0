#include <cmath>
#include <string>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/silu.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <attentive/modules/transformer_blocks.h>

#include "functional/elementwise.h"
#include "support/compare.h"
#include "support/errors.h"
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
  CHECK(FeedForward(FeedForwardOptions(6).hidden_dim(0))->options.hidden_dim() == 24);
  CHECK(value_error([] { return FeedForward(FeedForwardOptions(6).hidden_dim(-1)); }) ==
        "FeedForward: expected hidden_dim > 0, got -1");
}

TEST_CASE("FeedForward is a torch::nn citizen", "[feed_forward]") {
  test::ModuleSuite<FeedForward> suite;
  suite.make = [] { return FeedForward(FeedForwardOptions(6).hidden_dim(10)); };
  suite.input_shape = {2, 5, 6};
  suite.keys = {"layers.0.weight", "layers.0.bias", "layers.2.weight", "layers.2.bias"};
  suite.has_dropout = false;
  suite.run();
}

TEST_CASE("FeedForward without gradients equals that with gradients", "[feed_forward][short]") {
  const bool gated = GENERATE(false, true);
  const auto activation = GENERATE(Activation::GeluTanh, Activation::Silu, Activation::Gelu);
  const int64_t tokens = GENERATE(1, 9, 32, 150);
  INFO((gated ? "gated " : "") << to_string(activation) << ", " << tokens << " tokens");
  FeedForward ff(FeedForwardOptions(24).hidden_dim(300).activation(activation).gated(gated));
  const auto x = at::randn({1, tokens, 24});
  const auto want = ff->forward(x);
  if (gated && activation == Activation::Silu) {
    const auto layer = [&](const std::string& name, const at::Tensor& input) {
      const auto state = ff->named_parameters();
      return at::linear(input, state[name + ".weight"], state[name + ".bias"]);
    };
    CHECK_WITHIN(want, layer("layers.2", at::silu(layer("gate", x)) * layer("layers.0", x)), {1e-5, 2e-6});
  }
  const at::NoGradGuard no_grad;
  CHECK_WITHIN(ff->forward(x), want, {1e-5, 2e-6});
  const auto half = at::kBFloat16;
  ff->to(half);
  CHECK_WITHIN(ff->forward(x.to(half)), want, {0, 0.02 * want.abs().max().item<double>()});
}

TEST_CASE("GELU's vector form equals ATen's, values and gradients", "[feed_forward][short]") {
  const auto check = [](const at::Tensor& values, const at::Tensor& grad) {
    const auto x = values.clone().requires_grad_(true), exact = values.to(at::kDouble).requires_grad_(true);
    const auto y = gelu_tanh(x), expected = at::gelu(exact, "tanh");
    CHECK_WITHIN(y, expected, {0, 3e-7 * values.abs().max().item<double>()});
    y.backward(grad);
    expected.backward(grad.to(at::kDouble));
    CHECK_WITHIN(x.grad(), exact.grad(), {0, 2e-6});
  };
  check(at::linspace(-30, 30, 60001), at::ones({60001}));
  check(at::linspace(-3, 3, 60001), at::ones({60001}));
  check(at::randn({3, 1001, 17}), at::randn({17, 1001, 3}).permute({2, 1, 0}));
  const auto edges = gelu_tanh(test::table({{0.0f, 1e20f, -1e38f, INFINITY, NAN}}))[0];
  CHECK(edges[0].item<float>() == 0.0f);
  CHECK(edges[1].item<float>() == 1e20f);
  CHECK(std::abs(edges[2].item<float>()) < 1e-6f);
  CHECK(edges[3].item<float>() == INFINITY);
  CHECK(std::isnan(edges[4].item<float>()));
}
