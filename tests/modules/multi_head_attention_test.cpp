#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/modules/multi_head_attention.h>

#include "support/compare.h"
#include "support/module_suite.h"

using namespace attentive;
using attentive::test::table;

namespace {

at::Tensor batch() {
  const auto inputs = table({{.43f, .15f, .89f},
                             {.55f, .87f, .66f},
                             {.57f, .85f, .64f},
                             {.22f, .58f, .33f},
                             {.77f, .25f, .10f},
                             {.05f, .80f, .55f}});
  return at::stack({inputs, inputs});
}

MultiHeadAttention notebook_module() {
  at::manual_seed(123);
  return MultiHeadAttention(3, 2, 6, 0.0, 2);
}

}  // namespace

TEST_CASE("MultiHeadAttention prints the notebook's table", "[multi_head_attention]") {
  const auto y = notebook_module()->forward(batch());
  const auto printed = table({{.3190f, .4858f},
                              {.2943f, .3897f},
                              {.2856f, .3593f},
                              {.2693f, .3873f},
                              {.2639f, .3928f},
                              {.2575f, .4028f}});
  CHECK_WITHIN(y, at::stack({printed, printed}), {0.0, 0.5e-4 + 2e-6});
}

TEST_CASE("MultiHeadAttention is a torch::nn citizen", "[multi_head_attention]") {
  test::ModuleSuite<MultiHeadAttention> suite;
  suite.make = [] {
    return MultiHeadAttention(MultiHeadAttentionOptions(6, 8, 5, 0.25, 2, /*qkv_bias=*/true));
  };
  suite.input_shape = {2, 5, 6};
  suite.keys = {"W_query.weight", "W_query.bias", "W_key.weight",    "W_key.bias",
                "W_value.weight", "W_value.bias", "out_proj.weight", "out_proj.bias"};
  suite.run();
}
