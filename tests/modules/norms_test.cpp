#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <attentive/modules/norms.h>

#include "support/compare.h"
#include "support/errors.h"
#include "support/module_suite.h"

using namespace attentive;
using attentive::test::type_error;
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

TEST_CASE("RMSNorm gives Python's row and its formula", "[rms_norm]") {
  // torch.nn.RMSNorm(3, eps=1e-6)(torch.tensor([0.43, 0.15, 0.89])) with torch 2.11 in Python
  CHECK_WITHIN(RMSNorm(3)->forward(test::table({{.43f, .15f, .89f}})),
               test::table({{0.7449670f, 0.2598722f, 1.5419085f}}), {1e-6, 0});
  RMSNorm norm(RMSNormOptions(5).eps(0.1));
  {
    const at::NoGradGuard no_grad;
    norm->weight.normal_();
  }
  const auto x = at::randn({2, 4, 5});
  CHECK_WITHIN(norm->forward(x), norm->weight * x / (x.square().mean(-1, true) + 0.1).sqrt(), {1e-5, 1e-5});
  CHECK(value_error([&] {
          return norm->forward(at::randn({5, 4}));
        }) == "RMSNorm: expected x of shape (..., 5), got (5, 4)");
  CHECK(value_error([] { return RMSNorm(0); }) == "RMSNorm: expected features > 0, got 0");
  CHECK(value_error([] { return RMSNorm(RMSNormOptions(2).eps(-1)); }) ==
        "RMSNorm: expected eps to be finite and not negative, got -1");
}

TEST_CASE("RMSNorm without gradients is rounded once, on any number of threads",
          "[rms_norm][threads][short]") {
  const bool unit_offset = GENERATE(false, true);
  const int64_t features = GENERATE(1, 7, 64, 130), tokens = GENERATE(3, 700);
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    INFO(type << ", " << tokens << " tokens, " << features << " features, unit_offset " << unit_offset);
    RMSNorm norm(RMSNormOptions(features).unit_offset(unit_offset).eps(1e-3));
    {
      const at::NoGradGuard no_grad;
      norm->weight.copy_(at::randn({features}));
    }
    norm->to(type);
    const auto x = at::randn({2, tokens, features}).to(type);
    const auto wide = x.to(at::kDouble),
               weight = norm->weight.detach().to(at::kDouble) + (unit_offset ? 1 : 0);
    const auto want = wide / (wide.square().mean(-1, true) + 1e-3).sqrt() * weight;
    const at::NoGradGuard no_grad;
    const auto got = norm->forward(x);
    CHECK(got.scalar_type() == type);
    const auto error = (got.to(at::kDouble) - want).abs();
    // Half the distance between two subnormal numbers, which a relative bound does not cover.
    const double subnormal = type == at::kHalf ? 0x1p-25 : 0;
    CHECK((error <= want.abs() * (0.5 * test::unit_of(type) + 1e-6) + subnormal).all().item<bool>());
    const auto threads = at::get_num_threads();
    at::set_num_threads(1);
    CHECK(at::equal(norm->forward(x), got));
    at::set_num_threads(threads);
  }
}

TEST_CASE("RMSNorm is a torch::nn citizen", "[rms_norm]") {
  test::ModuleSuite<RMSNorm> suite;
  suite.make = [] { return RMSNorm(6); };
  suite.input_shape = {2, 5, 6};
  suite.keys = {"weight"};
  suite.has_dropout = false;
  suite.meta = false;  // LibTorch has no RMS norm for meta tensors
  suite.run();
}

TEST_CASE("RMSNorm refuses another dtype than its parameters'", "[rms_norm]") {
  RMSNorm norm(6);
  const auto x = at::randn({2, 4, 6});
  CHECK(type_error([&] { norm->forward(x.to(at::kDouble)); }) ==
        "RMSNorm: expected x of dtype Float like the parameters, got Double");
  CHECK(type_error([&] { norm->forward(x.to(at::kBFloat16)); }) ==
        "RMSNorm: expected x of dtype Float like the parameters, got BFloat16");
  norm->to(at::kBFloat16);
  CHECK(type_error([&] { norm->forward(x); }) ==
        "RMSNorm: expected x of dtype BFloat16 like the parameters, got Float");
  at::autocast::set_autocast_enabled(at::kCPU, true);  // its own rules then decide the dtype
  const auto y = norm->forward(x);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
  CHECK(y.sizes() == x.sizes());
}
