#include <ATen/ops/randn.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/notebooks/chapter_3.h>

#include "modules/golden_check.h"
#include "support/compare.h"
#include "support/errors.h"
#include "support/module_suite.h"

using namespace attentive;
using namespace attentive::test;

namespace {

GoldenModule notebook_self_attention_v2(bool bias) {
  return {.make = [=] { return SelfAttentionV2(3, 2, bias).ptr(); },
          .call = bind_one_input<SelfAttentionV2>()};
}

}  // namespace

TEST_CASE("SelfAttentionV2 prints the notebook's tables", "[self_attention_v2]") {
  at::manual_seed(789);
  SelfAttentionV2 module(3, 2);
  const auto [y, weights] = module->forward_with_weights(sentence());
  CHECK(as_printed(y, table({{-.0739f, .0713f},
                             {-.0748f, .0703f},
                             {-.0749f, .0702f},
                             {-.0760f, .0685f},
                             {-.0763f, .0679f},
                             {-.0754f, .0693f}})));
  CHECK(as_printed(weights, table({{.1921f, .1646f, .1652f, .1550f, .1721f, .1510f},
                                   {.2041f, .1659f, .1662f, .1496f, .1665f, .1477f},
                                   {.2036f, .1659f, .1662f, .1498f, .1664f, .1480f},
                                   {.1869f, .1667f, .1668f, .1571f, .1661f, .1564f},
                                   {.1830f, .1669f, .1670f, .1588f, .1658f, .1585f},
                                   {.1935f, .1663f, .1666f, .1542f, .1666f, .1529f}})));
}

TEST_CASE("SelfAttentionV2 masks like the notebook's cells 29 to 33", "[self_attention_v2]") {
  at::manual_seed(789);
  SelfAttentionV2 plain(3, 2);
  SelfAttentionV2 causal(SelfAttentionV2Options(3, 2).attention({.causal = Causal::BottomRight}));
  causal->W_query = plain->W_query;
  causal->W_key = plain->W_key;
  const auto weights = causal->forward_with_weights(sentence()).second;
  const auto printed = table({{1.0000f, 0, 0, 0, 0, 0},
                              {.5517f, .4483f, 0, 0, 0, 0},
                              {.3800f, .3097f, .3103f, 0, 0, 0},
                              {.2758f, .2460f, .2462f, .2319f, 0, 0},
                              {.2175f, .1983f, .1984f, .1888f, .1971f, 0},
                              {.1935f, .1663f, .1666f, .1542f, .1666f, .1529f}});
  CHECK(as_printed(weights, printed));
  // Setting weights to zero after the softmax and dividing by the row's sum is equivalent.
  const auto zeroed = plain->forward_with_weights(sentence()).second.tril();
  CHECK_CLOSE(zeroed / zeroed.sum(-1, /*keepdim=*/true), weights);
}

TEST_CASE("SelfAttentionV2 equals PyTorch", "[self_attention_v2]") {
  check_golden("SelfAttentionV2", notebook_self_attention_v2(false), at::kCPU);
  check_golden("SelfAttentionV2.bias", notebook_self_attention_v2(true), at::kCPU);
}

TEST_CASE("SelfAttentionV2 equals PyTorch on CUDA", "[self_attention_v2][cuda]") {
  check_golden("SelfAttentionV2.bias", notebook_self_attention_v2(true), cuda_or_skip());
}

TEST_CASE("SelfAttentionV2 and SelfAttentionV1 exchange weights", "[self_attention_v2]") {
  SelfAttentionV1 v1(3, 2);
  SelfAttentionV2 v2(3, 2), biased(3, 2, /*qkv_bias=*/true);
  CHECK(difference(v2->forward(batch()), v1->forward(batch())) != "");
  copy_weights(*v2, *v1);
  CHECK_CLOSE(v1->forward(batch()), v2->forward(batch()));
  SelfAttentionV1 other(3, 2);
  copy_weights(*other, *v2);
  copy_weights(*other, *biased);
  CHECK_CLOSE(v2->forward(batch()), other->forward(batch()));
  CHECK_CLOSE(biased->forward(batch()), other->forward(batch()));
  CHECK(v2->W_query->weight.requires_grad());

  CHECK(
      value_error([&] { copy_weights(*biased, *v1); }) ==
      "copy_weights: expected a SelfAttentionV2 without biases, for which SelfAttentionV1 has no place, got "
      "qkv_bias = true");
  SelfAttentionV1 wide(4, 2);
  CHECK(value_error([&] { copy_weights(*wide, *v2); }) ==
        "copy_weights: expected equal d_in and d_out, got SelfAttentionV1 (4, 2), SelfAttentionV2 (3, 2)");
  CHECK(value_error([&] { copy_weights(*v2, *wide); }) ==
        "copy_weights: expected equal d_in and d_out, got SelfAttentionV1 (4, 2), SelfAttentionV2 (3, 2)");
}

TEST_CASE("SelfAttentionV2 is a torch::nn citizen", "[self_attention_v2]") {
  ModuleSuite<SelfAttentionV2> suite;
  suite.make = [] { return SelfAttentionV2(6, 4, /*qkv_bias=*/true); };
  suite.input_shape = {2, 5, 6};
  suite.keys = {"W_query.weight", "W_query.bias",   "W_key.weight",
                "W_key.bias",     "W_value.weight", "W_value.bias"};
  suite.has_dropout = false;
  suite.unbatched = true;
  suite.run();
}

TEST_CASE("SelfAttentionV2 names what is wrong", "[self_attention_v2][errors]") {
  SelfAttentionV2 module(6, 4);
  CHECK(value_error([&] {
          module->forward(at::randn({2, 5, 4}));
        }) == "SelfAttentionV2: expected x of shape (B, T, 6) or (T, 6), got (2, 5, 4)");
  CHECK(type_error([&] {
          module->forward(at::randn({5, 6}, at::kDouble));
        }) == "SelfAttentionV2: expected x of dtype Float like the parameters, got Double");
  CHECK(value_error([] { SelfAttentionV2 bad(0, 4); }) == "SelfAttentionV2: expected d_in > 0, got 0");
  CHECK(value_error([] { SelfAttentionV2 bad(6, -1); }) == "SelfAttentionV2: expected d_out > 0, got -1");
}
