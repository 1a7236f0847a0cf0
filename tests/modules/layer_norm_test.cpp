#include <ATen/ops/randn.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/modules/norms.h>

#include "support/compare.h"
#include "support/errors.h"
#include "support/module_suite.h"

using namespace attentive;
using attentive::test::value_error;

TEST_CASE("LayerNorm gives the anchor row and its formula", "[layer_norm]") {
  LayerNorm norm(3);
  CHECK_WITHIN(norm->forward(test::table({{.43f, .15f, .89f}})), test::table({{-0.1967f, -1.1144f, 1.3111f}}),
               {0, 0.5e-4});
  LayerNorm other(LayerNormOptions(5).eps(0.1));
  {
    const at::NoGradGuard no_grad;
    other->scale.normal_();
    other->shift.normal_();
  }
  const auto x = at::randn({2, 4, 5});
  const auto centred = x - x.mean(-1, true);
  const auto expected =
      other->scale * centred / (centred.square().mean(-1, true) + 0.1).sqrt() + other->shift;
  CHECK_WITHIN(other->forward(x), expected, {1e-5, 1e-5});
  CHECK_FALSE(LayerNorm(LayerNormOptions(5).bias(false))->shift.defined());
  CHECK(value_error([&] {
          return other->forward(at::randn({5, 4}));
        }) == "LayerNorm: expected x of shape (..., 5), got (5, 4)");
  CHECK(value_error([] { return LayerNorm(0); }) == "LayerNorm: expected emb_dim > 0, got 0");
}

TEST_CASE("LayerNorm is a torch::nn citizen", "[layer_norm]") {
  for (const bool bias : {true, false}) {
    test::ModuleSuite<LayerNorm> suite;
    suite.make = [bias] { return LayerNorm(LayerNormOptions(6).bias(bias)); };
    suite.input_shape = {2, 5, 6};
    suite.keys = bias ? std::vector<std::string>{"scale", "shift"} : std::vector<std::string>{"scale"};
    suite.has_dropout = false;
    suite.meta = false;  // LibTorch has no layer norm for meta tensors
    suite.run();
  }
}
