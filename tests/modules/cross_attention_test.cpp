#include <cmath>

#include <ATen/ops/eye.h>
#include <ATen/ops/randn.h>
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

GoldenModule two_sequences() {
  return {.inputs = {"x", "memory"},
          .draws_inputs = true,
          .make = [] { return CrossAttention(6, 5, 8, 0.0, 2, /*qkv_bias=*/true).ptr(); },
          .call =
              [](torch::nn::Module& module, const Inputs& inputs, const Mask& mask, Weights which) {
                return dynamic_cast<CrossAttentionImpl&>(module).forward_with_weights(inputs[0], inputs[1],
                                                                                      mask, which);
              }};
}

}  // namespace

TEST_CASE("CrossAttention equals PyTorch", "[cross_attention]") {
  check_golden("CrossAttention", two_sequences(), at::kCPU);
  check_golden("CrossAttention.mask", two_sequences(), at::kCPU);
}

TEST_CASE("CrossAttention equals PyTorch on CUDA", "[cross_attention][cuda]") {
  check_golden("CrossAttention.mask", two_sequences(), cuda_or_skip());
}

TEST_CASE("CrossAttention looks from two words at four others", "[cross_attention]") {
  // With identity projections, words 1 and 2 of the sentence are the queries, and words 3 to 6 are keys and
  // values.
  CrossAttention module(3, 3, 3, 0.0, 1);
  {
    const at::NoGradGuard no_grad;
    for (auto& layer : {module->W_query, module->W_key, module->W_value, module->out_proj})
      layer->weight.copy_(at::eye(3));
    module->out_proj->bias.zero_();
  }
  const auto [y, weights] = module->forward_with_weights(sentence().slice(0, 0, 2), sentence().slice(0, 2));
  CHECK(as_printed(y, table({{.4059f, .6409f, .4254f}, {.4009f, .6546f, .4379f}})));
  CHECK(weights.sizes() == at::IntArrayRef({1, 2, 4}));
}

TEST_CASE("CrossAttention takes queries from x, keys and values from memory", "[cross_attention]") {
  CrossAttention module(6, 5, 8, 0.0, 2);
  const auto x = at::randn({2, 4, 6}), memory = at::randn({2, 7, 5});
  const auto y = module->forward(x, memory);
  CHECK(y.sizes() == at::IntArrayRef({2, 4, 8}));
  // A query's row depends on no other query, and on every token of memory.
  CHECK_CLOSE(module->forward(x.slice(1, 2, 3), memory), y.slice(1, 2, 3));
  auto other = memory.clone();
  other.select(1, 6).add_(1.0);
  CHECK((module->forward(x, other) - y).abs().amax(-1).gt(1e-4).all().item<bool>());
  // Hidden tokens of memory have no effect, even if they hold NaN.
  other.slice(1, 3).fill_(NAN);
  const auto lengths = at::tensor({3, 3}, at::kLong);
  CHECK_CLOSE(module->forward(x, other, Mask::key_lengths(lengths)),
              module->forward(x, memory.slice(1, 0, 3)));
}

TEST_CASE("CrossAttention is a torch::nn citizen", "[cross_attention]") {
  ModuleSuite<CrossAttention> suite;
  suite.make = [] { return CrossAttention(6, 6, 8, 0.25, 2, /*qkv_bias=*/true); };
  suite.input_shape = {2, 5, 6};
  suite.keys = {"W_query.weight", "W_query.bias", "W_key.weight",    "W_key.bias",
                "W_value.weight", "W_value.bias", "out_proj.weight", "out_proj.bias"};
  suite.call = [](CrossAttention& m, const at::Tensor& x) { return m->forward(x.slice(-2, 0, 3), x * x); };
  suite.sequential = false;
  suite.unbatched = true;
  suite.run();
}

TEST_CASE("CrossAttention names what is wrong", "[cross_attention][errors]") {
  CrossAttention module(6, 5, 8, 0.0, 2);
  const auto x = at::randn({2, 4, 6}), memory = at::randn({2, 7, 5});
  CHECK(value_error([&] { module->forward(memory, memory); }) ==
        "CrossAttention: expected x of shape (B, T, 6) or (T, 6), got (2, 7, 5)");
  CHECK(value_error([&] { module->forward(x, x); }) ==
        "CrossAttention: expected memory of shape (B, T, 5) or (T, 5), got (2, 4, 6)");
  CHECK(value_error([&] {
          module->forward(x, at::randn({3, 7, 5}));
        }) == "CrossAttention: expected memory of the batch size of x, got memory (3, 7, 5), x (2, 4, 6)");
  CHECK(value_error([&] { module->forward(x, memory[0]); }) ==
        "CrossAttention: expected memory of the batch size of x, got memory (7, 5), x (2, 4, 6)");
  CHECK(type_error([&] { module->forward(x, memory.to(at::kDouble)); }) ==
        "CrossAttention: expected memory of dtype Float like the parameters, got Double");
  const auto make = [](CrossAttentionOptions options) {
    return value_error([&] { CrossAttention bad(options); });
  };
  CHECK(make({0, 5, 8, 0.0, 2}) == "CrossAttention: expected d_in > 0, got 0");
  CHECK(make({6, 0, 8, 0.0, 2}) == "CrossAttention: expected d_kv > 0, got 0");
  CHECK(make({6, 5, 0, 0.0, 2}) == "CrossAttention: expected d_out > 0, got 0");
  CHECK(make({6, 5, 8, 0.0, 5}) == "CrossAttention: expected num_heads to divide d_out = 8, got 5");
  CHECK(make({6, 5, 8, 7.0, 2}) == "CrossAttention: expected dropout in [0, 1], got 7");
}
