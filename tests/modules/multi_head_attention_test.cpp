#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/modules/multi_head_attention.h>

#include "modules/golden_check.h"
#include "support/compare.h"
#include "support/errors.h"
#include "support/module_suite.h"

using namespace attentive;
using namespace attentive::test;

namespace {

GoldenModule notebook_multi_head_attention(double dropout) {
  return {.make = [=] { return MultiHeadAttention(3, 2, 6, dropout, 2).ptr(); },
          .call = bind_one_input<MultiHeadAttention>()};
}

}  // namespace

TEST_CASE("MultiHeadAttention prints the notebook's table", "[multi_head_attention]") {
  at::manual_seed(123);
  const auto y = MultiHeadAttention(3, 2, 6, 0.0, 2)->forward(batch());
  const auto printed = table({{.3190f, .4858f},
                              {.2943f, .3897f},
                              {.2856f, .3593f},
                              {.2693f, .3873f},
                              {.2639f, .3928f},
                              {.2575f, .4028f}});
  CHECK(as_printed(y, at::stack({printed, printed})));
}

TEST_CASE("MultiHeadAttention equals PyTorch", "[multi_head_attention][short]") {
  check_golden("MultiHeadAttention", notebook_multi_head_attention(0.0), at::kCPU);
  check_training("MultiHeadAttention.train", notebook_multi_head_attention(0.5));
}

TEST_CASE("MultiHeadAttention equals PyTorch on CUDA", "[multi_head_attention][cuda]") {
  check_golden("MultiHeadAttention", notebook_multi_head_attention(0.0), cuda_or_skip());
}

TEST_CASE("MultiHeadAttention is a torch::nn citizen", "[multi_head_attention]") {
  ModuleSuite<MultiHeadAttention> suite;
  suite.make = [] {
    return MultiHeadAttention(MultiHeadAttentionOptions(6, 8, 5, 0.25, 2, /*qkv_bias=*/true));
  };
  suite.input_shape = {2, 5, 6};
  suite.keys = {"W_query.weight", "W_query.bias", "W_key.weight",    "W_key.bias",
                "W_value.weight", "W_value.bias", "out_proj.weight", "out_proj.bias"};
  suite.unbatched = true;
  suite.run();
}

TEST_CASE("MultiHeadAttention takes fewer tokens than its context", "[multi_head_attention]") {
  MultiHeadAttention module(3, 4, /*context_length=*/6, 0.0, 2),
      unlimited(3, 4, /*context_length=*/0, 0.0, 2);
  const auto x = at::randn({2, 6, 3});
  // The module is causal, so later tokens do not change earlier outputs.
  CHECK_CLOSE(module->forward(x.slice(1, 0, 4)), module->forward(x).slice(1, 0, 4));
  CHECK(unlimited->forward(at::randn({2, 40, 3})).size(1) == 40);
}

TEST_CASE("MultiHeadAttention obeys its mask, batched or not", "[multi_head_attention]") {
  MultiHeadAttention module(3, 4, 6, 0.0, 2);
  const auto x = at::randn({2, 6, 3});
  const auto mask = Mask::key_lengths(at::tensor({6, 3}, at::kLong));
  const auto [y, weights] = module->forward_with_weights(x, mask);
  CHECK(weights[1].slice(2, 3).eq(0).all().item<bool>());
  CHECK(weights.sum(-1).sub(1).abs().max().item<float>() < 1e-6f);
  const auto [one, one_weights] =
      module->forward_with_weights(x[1], Mask::key_lengths(at::tensor({3}, at::kLong)));
  CHECK_CLOSE(one, y[1]);
  CHECK_CLOSE(one_weights, weights[1]);
}

TEST_CASE("MultiHeadAttention names what is wrong", "[multi_head_attention][errors]") {
  MultiHeadAttention module(6, 8, 5, 0.0, 2);
  const auto value = [&](const at::Tensor& x) { return value_error([&] { module->forward(x); }); };
  CHECK(value({}) == "MultiHeadAttention: expected x to be a tensor, got an undefined one");
  CHECK(value(at::randn({6})) == "MultiHeadAttention: expected x of shape (B, T, 6) or (T, 6), got (6,)");
  CHECK(value(at::randn({2, 5, 4})) ==
        "MultiHeadAttention: expected x of shape (B, T, 6) or (T, 6), got (2, 5, 4)");
  CHECK(value(at::randn({1, 2, 5, 6})) ==
        "MultiHeadAttention: expected x of shape (B, T, 6) or (T, 6), got (1, 2, 5, 6)");
  CHECK(value(at::randn({2, 6, 6})) ==
        "MultiHeadAttention: expected at most context_length = 5 tokens, got 6");
  CHECK(value(at::randn({2, 5, 6}, at::kMeta)) ==
        "MultiHeadAttention: expected x on cpu like the parameters, got it on meta");
  CHECK(type_error([&] {
          module->forward(at::randn({2, 5, 6}, at::kDouble));
        }) == "MultiHeadAttention: expected x of dtype Float like the parameters, got Double");

  const auto make = [](MultiHeadAttentionOptions options) {
    return value_error([&] { MultiHeadAttention refused(options); });
  };
  CHECK(make({0, 8, 5, 0.0, 2}) == "MultiHeadAttention: expected d_in > 0, got 0");
  CHECK(make({6, -8, 5, 0.0, 2}) == "MultiHeadAttention: expected d_out > 0, got -8");
  CHECK(make({6, 8, 5, 0.0, 3}) == "MultiHeadAttention: expected num_heads to divide d_out = 8, got 3");
  CHECK(make({6, 8, 5, 0.0, 0}) == "MultiHeadAttention: expected num_heads > 0, got 0");
  CHECK(make({6, 8, 5, 1.5, 2}) == "MultiHeadAttention: expected dropout in [0, 1], got 1.5");
  CHECK(make({6, 8, -1, 0.0, 2}) == "MultiHeadAttention: expected context_length >= 0 (0: no limit), got -1");
  CHECK(make(MultiHeadAttentionOptions(6, 8, 5, 0.0, 2).attention({.dropout_p = 0.5})) ==
        "MultiHeadAttention: expected attention().dropout_p to stay 0 (set dropout; training mode decides), "
        "got "
        "0.5");
}
