#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/functional/attention.h>
#include <attentive/modules/distance_bias.h>

#include "modules/bias_cases.h"
#include "support/compare.h"
#include "support/errors.h"
#include "support/module_suite.h"

using namespace attentive;
using namespace attentive::test;

TEST_CASE("DistanceBias equals transformers' ALiBi with learned slopes in value and gradient",
          "[distance_bias][bias_cases]") {
  const AttentionOptions causal{.causal = Causal::BottomRight};
  for (const auto& c : bias_cases("distance", 6)) {
    const auto heads = c.integer("num_heads");
    DistanceBias bias(heads);
    if (c.flag("standard")) CHECK(bit_equal(bias->slopes.detach(), c.file.state.at("slopes")));
    check_bias_case(c, *bias, [&](const CaseTensors& in) {
      return attention(in.at("q"), in.at("k"), in.at("v"), causal, {.alibi_slopes = bias->slopes}).output;
    });
    check_bias_case(c, *bias, [&](const CaseTensors& in) {
      const auto tokens = in.at("q").size(2);
      return attention(in.at("q"), in.at("k"), in.at("v"), causal,
                       Mask::per_head(Mask::bias(bias->forward(tokens, tokens))));
    });
  }
}

TEST_CASE("DistanceBias is a torch::nn citizen", "[distance_bias]") {
  ModuleSuite<DistanceBias> suite;
  suite.make = [] { return DistanceBias(3); };
  suite.input_shape = {3, 4, 6};
  suite.keys = {"slopes"};
  suite.call = [](DistanceBias& bias, const at::Tensor& x) {
    return x + bias->forward(x.size(-2), x.size(-1));
  };
  suite.sequential = false;
  suite.has_dropout = false;
  suite.meta = false;  // LibTorch has no absolute values of meta tensors
  suite.run();
}

TEST_CASE("DistanceBias begins with the standard slopes and counts from the last key", "[distance_bias]") {
  DistanceBias bias(6);
  CHECK(bit_equal(bias->slopes.detach(), alibi_slopes(6)));
  CHECK(bias->slopes.requires_grad());
  {
    const at::NoGradGuard no_grad;
    bias->slopes.normal_();
  }
  const auto values = bias->forward(3, 5);
  CHECK(values.sizes() == at::IntArrayRef({6, 3, 5}));
  for (int64_t i = 0; i < 3; ++i) {
    for (int64_t j = 0; j < 5; ++j)
      CHECK(bit_equal(values.select(1, i).select(1, j),
                      bias->slopes * -static_cast<double>(std::abs(i + 2 - j))));
  }
  CHECK(bit_equal(bias->forward(5, 3), bias->forward(5, 5).narrow(2, 2, 3)));
  CHECK(bias->forward(0, 3).sizes() == at::IntArrayRef({6, 0, 3}));
  CHECK(bias->forward(3, 0).sizes() == at::IntArrayRef({6, 3, 0}));
}

TEST_CASE("DistanceBias keeps far distances apart in half types", "[distance_bias]") {
  constexpr int64_t kHeads = 12;  // not all slopes are powers of two
  DistanceBias bias(kHeads);
  bias->to(at::kBFloat16);
  const auto slopes = alibi_slopes(kHeads).to(at::kBFloat16).to(at::kFloat);
  const auto exact = slopes.unsqueeze(1) * -at::arange(1001, -1, -1).to(at::kFloat);
  CHECK(bit_equal(bias->forward(1, 1002).view({kHeads, 1002}), exact.to(at::kBFloat16)));
}

TEST_CASE("DistanceBias names what is wrong", "[distance_bias][errors]") {
  CHECK(value_error([] { DistanceBias refused(0); }) == "DistanceBias: expected num_heads > 0, got 0");
  DistanceBias bias(2);
  CHECK(value_error([&] { bias->forward(-1, 3); }) == "DistanceBias: expected queries >= 0, got -1");
  CHECK(value_error([&] { bias->forward(3, -1); }) == "DistanceBias: expected keys >= 0, got -1");
}
