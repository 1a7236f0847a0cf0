#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/modules/position_bias.h>

#include "modules/bias_cases.h"
#include "support/compare.h"
#include "support/errors.h"
#include "support/module_suite.h"

using namespace attentive;
using namespace attentive::test;

TEST_CASE("RelativePositionBias equals transformers' T5 in value and gradient",
          "[relative_position_bias][bias_cases]") {
  for (const auto& c : bias_cases("t5_bias", 16)) {
    RelativePositionBias bias(RelativePositionBiasOptions(c.integer("num_heads"))
                                  .num_buckets(c.integer("num_buckets"))
                                  .max_distance(c.integer("max_distance"))
                                  .bidirectional(c.flag("bidirectional")));
    check_bias_case(
        c, *bias, [&](const CaseTensors&) { return bias->forward(c.integer("queries"), c.integer("keys")); });
    CHECK(bit_equal(bias->forward(c.integer("queries"), c.integer("keys")), c.file.expected_output));
  }
}

TEST_CASE("RelativePositionBias is a torch::nn citizen", "[relative_position_bias]") {
  ModuleSuite<RelativePositionBias> suite;
  suite.make = [] {
    return RelativePositionBias(RelativePositionBiasOptions(2).num_buckets(6).max_distance(5));
  };
  suite.input_shape = {2, 4, 7};
  suite.keys = {"weight"};
  suite.call = [](RelativePositionBias& bias, const at::Tensor& x) {
    return x + bias->forward(x.size(-2), x.size(-1));
  };
  suite.sequential = false;
  suite.has_dropout = false;
  suite.meta = false;  // LibTorch selects rows of no meta tensor
  suite.run();
}

TEST_CASE("Near distances have a bucket each, far ones share, and each direction has its own",
          "[relative_position_bias]") {
  // torch.arange(...) through T5Attention._relative_position_bucket of transformers 5.23.0
  const auto differences =
      at::tensor({-1000, -128, -127, -91, -64, -32, -16, -8, -7, -1, 0, 1, 7, 8, 16, 127, 128}, at::kLong);
  const RelativePositionBias both(8), before(RelativePositionBiasOptions(8).bidirectional(false));
  CHECK(bit_equal(both->buckets(differences),
                  at::tensor({15, 15, 15, 15, 14, 12, 10, 8, 7, 1, 0, 17, 23, 24, 26, 31, 31}, at::kLong)));
  CHECK(bit_equal(before->buckets(differences),
                  at::tensor({31, 31, 31, 29, 26, 21, 16, 8, 7, 1, 0, 0, 0, 0, 0, 0, 0}, at::kLong)));
  // At these distances, transformers' float32 rounds up to the next bucket; float64 does not.
  const RelativePositionBias rounded(
      RelativePositionBiasOptions(8).num_buckets(10).max_distance(160).bidirectional(false));
  CHECK(
      bit_equal(rounded->buckets(at::tensor({-10, -20, -80}, at::kLong)), at::tensor({6, 7, 9}, at::kLong)));
}

TEST_CASE("The last query has the position of the last key", "[relative_position_bias]") {
  for (const bool bidirectional : {true, false}) {
    RelativePositionBias bias(
        RelativePositionBiasOptions(3).num_buckets(9).max_distance(6).bidirectional(bidirectional));
    const auto whole = bias->forward(12, 12);
    CHECK(whole.sizes() == at::IntArrayRef({3, 12, 12}));
    CHECK(whole.is_contiguous());
    CHECK(whole.requires_grad());
    // The rows of the last queries are those of a step with a cache.
    CHECK(bit_equal(bias->forward(4, 12), whole.narrow(1, 8, 4)));
    CHECK(bit_equal(bias->forward(1, 12), whole.narrow(1, 11, 1)));
    // The columns of the last keys are those of a cache that has dropped the others.
    CHECK(bit_equal(bias->forward(4, 7), whole.narrow(1, 8, 4).narrow(2, 5, 7)));
    // More queries than keys: the first ones stand before the first key.
    CHECK(bit_equal(bias->forward(12, 5), whole.narrow(2, 7, 5)));
    for (int64_t i = 0; i < 12; ++i) {
      for (int64_t j = 0; j < 12; ++j) {
        const auto row = bias->buckets(at::tensor({j - i}, at::kLong)).item<int64_t>();
        CHECK(bit_equal(whole.select(1, i).select(1, j), bias->weight[row]));
      }
    }
  }
  RelativePositionBias bias(3);
  CHECK(bias->forward(0, 5).sizes() == at::IntArrayRef({3, 0, 5}));
  CHECK(bias->forward(5, 0).sizes() == at::IntArrayRef({3, 5, 0}));
  CHECK(bias->forward(0, 0).sizes() == at::IntArrayRef({3, 0, 0}));
}

TEST_CASE("RelativePositionBias sums the gradients of half types in float32", "[relative_position_bias]") {
  RelativePositionBias bias(RelativePositionBiasOptions(2).bidirectional(false));
  bias->forward(3, 1000).sum().backward();
  const auto exact = bias->weight.grad();
  CHECK(exact[31][0].item<double>() > 2500);
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    RelativePositionBias half(RelativePositionBiasOptions(2).bidirectional(false));
    half->to(type);
    half->forward(3, 1000).sum().backward();
    CHECK(bit_equal(half->weight.grad(), exact.to(type)));
  }
}

TEST_CASE("RelativePositionBias names what is wrong", "[relative_position_bias][errors]") {
  const auto make = [](const RelativePositionBiasOptions& options) {
    return value_error([&] { RelativePositionBias refused(options); });
  };
  CHECK(make(RelativePositionBiasOptions(0)) == "RelativePositionBias: expected num_heads > 0, got 0");
  CHECK(make(RelativePositionBiasOptions(2).num_buckets(0)) ==
        "RelativePositionBias: expected num_buckets > 0, got 0");
  CHECK(make(RelativePositionBiasOptions(2).num_buckets(3)) ==
        "RelativePositionBias: expected num_buckets >= 4 for both directions, got 3");
  CHECK(make(RelativePositionBiasOptions(2).num_buckets(1).bidirectional(false)) ==
        "RelativePositionBias: expected num_buckets >= 2, got 1");
  CHECK(make(RelativePositionBiasOptions(2).max_distance(8)) ==
        "RelativePositionBias: expected max_distance > 8, the number of distances with a bucket each, got 8");
  CHECK(
      make(RelativePositionBiasOptions(2).max_distance(16).bidirectional(false)) ==
      "RelativePositionBias: expected max_distance > 16, the number of distances with a bucket each, got 16");
  CHECK(make(RelativePositionBiasOptions(2).max_distance(9)) == "no error");
  CHECK(make(RelativePositionBiasOptions(2).num_buckets(4).max_distance(2)) == "no error");
  RelativePositionBias bias(2);
  CHECK(value_error([&] { bias->forward(-1, 3); }) == "RelativePositionBias: expected queries >= 0, got -1");
  CHECK(value_error([&] { bias->forward(3, -1); }) == "RelativePositionBias: expected keys >= 0, got -1");
  CHECK(value_error([&] { bias->forward(3, int64_t{1} << 62); }) ==
        "RelativePositionBias: expected keys of at most 2^48, got 4611686018427387904");
  CHECK(value_error([&] { bias->buckets({}); }) ==
        "RelativePositionBias: expected differences to be a tensor, got an undefined one");
  CHECK(type_error([&] { bias->buckets(at::arange(3, at::kInt)); }) ==
        "RelativePositionBias: expected differences as int64, got Int");
}
