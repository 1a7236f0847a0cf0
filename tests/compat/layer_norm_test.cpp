#include <ATen/ops/layer_norm.h>
#include <ATen/ops/randn.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/compat/transformer_layers.h>

#include "support/compare.h"
#include "support/errors.h"
#include "support/module_suite.h"

using namespace attentive;

TEST_CASE("compat::LayerNorm is a torch::nn citizen", "[compat][layer_norm]") {
  test::ModuleSuite<compat::LayerNorm> suite;
  suite.make = [] { return compat::LayerNorm(6); };
  suite.input_shape = {2, 6};
  suite.keys = {"weight", "bias"};
  suite.has_dropout = false;
  suite.meta = false;
  suite.run();
  CHECK(compat::LayerNorm(compat::LayerNormOptions(3).bias(false))->parameters().size() == 1);
}

TEST_CASE("compat::LayerNorm is layer_norm over the last size, with and without bias",
          "[compat][layer_norm]") {
  const auto x = at::randn({2, 3, 6});
  compat::LayerNorm norm(compat::LayerNormOptions(6).eps(0.5));
  const at::NoGradGuard no_grad;
  norm->weight.normal_();
  norm->bias.normal_();
  CHECK(bit_equal(norm->forward(x), at::layer_norm(x, {6}, norm->weight, norm->bias, 0.5)));
  const compat::LayerNorm plain(compat::LayerNormOptions(6).bias(false));
  CHECK_FALSE(plain->bias.defined());
  CHECK(bit_equal(plain.ptr()->forward(x), at::layer_norm(x, {6}, plain->weight, {}, 1e-5)));
}

TEST_CASE("compat::LayerNorm names every mistake", "[compat][layer_norm][errors]") {
  using test::type_error;
  using test::value_error;
  CHECK(value_error([] { compat::LayerNorm(0); }) == "compat::LayerNorm: expected features > 0, got 0");
  compat::LayerNorm norm(6);
  CHECK(value_error([&] {
          norm->forward(at::randn({6, 5}));
        }) == "compat::LayerNorm: expected x of shape (..., 6), got (6, 5)");
  CHECK(type_error([&] { norm->forward(at::randn({6}, at::kDouble)); }) ==
        "compat::LayerNorm: expected x of dtype Float like the parameters, got Double");
}
