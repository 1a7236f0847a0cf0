#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/notebooks/chapter_3.h>

#include "modules/golden_check.h"
#include "support/compare.h"
#include "support/errors.h"
#include "support/module_suite.h"

using namespace attentive;
using namespace attentive::test;

namespace {

GoldenModule notebook_causal_attention(double dropout) {
  return {.make = [=] { return CausalAttention(3, 2, 6, dropout).ptr(); },
          .call = bind_one_input<CausalAttention>()};
}

}  // namespace

TEST_CASE("CausalAttention prints the notebook's table", "[causal_attention]") {
  at::manual_seed(123);
  const auto y = CausalAttention(3, 2, 6, 0.0)->forward(batch());
  const auto printed = table({{-.4519f, .2216f},
                              {-.5874f, .0058f},
                              {-.6300f, -.0632f},
                              {-.5675f, -.0843f},
                              {-.5526f, -.0981f},
                              {-.5299f, -.1081f}});
  CHECK(as_printed(y, at::stack({printed, printed})));
}

TEST_CASE("CausalAttention equals PyTorch", "[causal_attention][short]") {
  check_golden("CausalAttention", notebook_causal_attention(0.0), at::kCPU);
  check_training("CausalAttention.train", notebook_causal_attention(0.5));
}

TEST_CASE("CausalAttention equals PyTorch on CUDA", "[causal_attention][cuda]") {
  check_golden("CausalAttention", notebook_causal_attention(0.0), cuda_or_skip());
}

TEST_CASE("CausalAttention is a torch::nn citizen", "[causal_attention]") {
  ModuleSuite<CausalAttention> suite;
  suite.make = [] { return CausalAttention(6, 4, 5, 0.25, /*qkv_bias=*/true); };
  suite.input_shape = {2, 5, 6};
  suite.keys = {"W_query.weight", "W_query.bias",   "W_key.weight",
                "W_key.bias",     "W_value.weight", "W_value.bias"};
  suite.unbatched = true;
  suite.run();
}

TEST_CASE("CausalAttention takes fewer tokens than its context", "[causal_attention]") {
  CausalAttention module(3, 4, /*context_length=*/6, 0.0), unlimited(3, 4, /*context_length=*/0, 0.0);
  const auto x = at::randn({2, 6, 3});
  CHECK_CLOSE(module->forward(x.slice(1, 0, 4)), module->forward(x).slice(1, 0, 4));
  CHECK(unlimited->forward(at::randn({40, 3})).size(0) == 40);
}

TEST_CASE("CausalAttention names what is wrong", "[causal_attention][errors]") {
  CausalAttention module(6, 4, 5, 0.0);
  CHECK(value_error([&] {
          module->forward(at::randn({2, 5, 4}));
        }) == "CausalAttention: expected x of shape (B, T, 6) or (T, 6), got (2, 5, 4)");
  CHECK(value_error([&] {
          module->forward(at::randn({2, 7, 6}));
        }) == "CausalAttention: expected at most context_length = 5 tokens, got 7");
  CHECK(type_error([&] {
          module->forward(at::randn({5, 6}, at::kDouble));
        }) == "CausalAttention: expected x of dtype Float like the parameters, got Double");
  const auto make = [](CausalAttentionOptions options) {
    return value_error([&] { CausalAttention bad(options); });
  };
  CHECK(make({0, 4, 5, 0.0}) == "CausalAttention: expected d_in > 0, got 0");
  CHECK(make({6, 0, 5, 0.0}) == "CausalAttention: expected d_out > 0, got 0");
  CHECK(make({6, 4, -5, 0.0}) == "CausalAttention: expected context_length >= 0 (0: no limit), got -5");
  CHECK(make({6, 4, 5, -0.1}) == "CausalAttention: expected dropout in [0, 1], got -0.1");
}
