#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/functional/heads_and_windows.h>
#include <attentive/functional/linear_attention.h>
#include <attentive/modules/linear_attention.h>
#include <attentive/modules/multi_head_attention.h>

#include "support/compare.h"
#include "support/module_suite.h"

using namespace attentive;

TEST_CASE("LinearAttention is a torch::nn citizen", "[linear_attention]") {
  test::ModuleSuite<LinearAttention> suite;
  suite.make = [] { return LinearAttention(6, 8, 2, /*qkv_bias=*/true); };
  suite.input_shape = {2, 5, 6};
  suite.keys = {"W_query.weight", "W_query.bias", "W_key.weight",    "W_key.bias",
                "W_value.weight", "W_value.bias", "out_proj.weight", "out_proj.bias"};
  suite.has_dropout = false;
  suite.run();
}

TEST_CASE("LinearAttention projects as MultiHeadAttention does", "[linear_attention]") {
  at::manual_seed(3);
  LinearAttention linear(6, 8, 2);
  at::manual_seed(3);
  MultiHeadAttention softmax(6, 8, 5, 0.0, 2);
  const auto expected = softmax->named_parameters();
  for (const auto& item : linear->named_parameters()) CHECK(bit_equal(item.value(), expected[item.key()]));
  const auto x = at::randn({2, 5, 6});
  // The first token sees only itself, with any function from scores to weights.
  CHECK_CLOSE(linear->forward(x).select(1, 0), softmax->forward(x).select(1, 0));
  CHECK_CLOSE(linear->forward(x[1]), linear->forward(x)[1]);
  // All tokens are compared with the function.
  const auto heads = [&](torch::nn::Linear& layer) { return split_heads(layer->forward(x), 2); };
  const auto context = linear_attention(heads(linear->W_query), heads(linear->W_key), heads(linear->W_value),
                                        linear->options.attention());
  CHECK_CLOSE(linear->forward(x), linear->out_proj->forward(merge_heads(context)));
}

TEST_CASE("LinearAttention: padding leaves the output bias", "[linear_attention]") {
  LinearAttention module(LinearAttentionOptions(4, 4, 2).attention({.causal = Causal::None}));
  const auto x = at::randn({2, 3, 4});
  const auto y = module->forward(x, Mask::key_lengths(at::tensor({2, 0}, at::kLong)));
  CHECK_CLOSE(y[1], module->out_proj->bias.expand({3, 4}));
  CHECK_CLOSE(y[0].slice(0, 0, 2), module->forward(x[0].slice(0, 0, 2)));
}

TEST_CASE("LinearAttention names every mistake", "[linear_attention]") {
  CHECK_THROWS_AS(LinearAttention(4, 6, 4), c10::ValueError);
  CHECK_THROWS_AS(LinearAttention(0, 6, 2), c10::ValueError);
  CHECK_THROWS_AS(LinearAttention(LinearAttentionOptions(4, 6, 2).attention({.chunk_size = -1})),
                  c10::ValueError);
  CHECK_THROWS_AS(LinearAttention(4, 6, 2)->forward(at::randn({2, 3, 5})), c10::ValueError);
}
