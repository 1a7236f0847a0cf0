#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/modules/multi_head_attention.h>
#include <attentive/notebooks/vision_transformer.h>

#include "modules/golden_check.h"
#include "support/compare.h"
#include "support/errors.h"
#include "support/golden.h"
#include "support/module_suite.h"

using namespace attentive;
using namespace attentive::test;

namespace {

GoldenModule small_module() {
  return {.draws_inputs = true,
          .make = [] { return FusedSelfAttention(16, 4).ptr(); },
          .call = bind_one_input<FusedSelfAttention>()};
}

}  // namespace

TEST_CASE("FusedSelfAttention equals PyTorch", "[fused_self_attention]") {
  check_golden("FusedSelfAttention", small_module(), at::kCPU);
}

TEST_CASE("FusedSelfAttention equals PyTorch on CUDA", "[fused_self_attention][cuda]") {
  check_golden("FusedSelfAttention", small_module(), cuda_or_skip());
}

TEST_CASE("FusedSelfAttention equals PyTorch at the size of a vision transformer", "[fused_self_attention]") {
  const Golden golden("FusedSelfAttention.full");
  at::manual_seed(golden.seed());
  const auto x = at::randn({32, 196, 768});
  CHECK_WITHIN(x[0][0].slice(0, 0, 8), golden["x_head"], {0.0, 5e-6});
  FusedSelfAttention module(768);
  int64_t parameters = 0;
  for (const auto& parameter : module->parameters()) parameters += parameter.numel();
  CHECK(parameters == 2362368);
  const at::NoGradGuard no_grad;
  const auto y = module->forward(x);
  CHECK(y.sizes() == x.sizes());
  CHECK_CLOSE(y.select(1, 0).slice(-1, 0, 8), golden["output_head"]);
  CHECK_WITHIN(y.to(at::kDouble).sum(), golden["output_sum"], {0.0, 0.05});
  CHECK_WITHIN(y.to(at::kDouble).abs().sum(), golden["output_abs_sum"], {1e-6, 0.0});
  // Only one batch item's weights are requested, since all of them take 39 MB.
  const auto weights = module->forward_with_weights(x.slice(0, 0, 1)).second;
  CHECK(weights.sizes() == at::IntArrayRef({1, 8, 196, 196}));
  CHECK_CLOSE(weights.select(2, 0).slice(-1, 0, 8), golden["weights_head"].slice(0, 0, 1));
}

TEST_CASE("FusedSelfAttention is MultiHeadAttention with packed projections", "[fused_self_attention]") {
  const auto x = at::randn({2, 5, 8});
  MultiHeadAttention separate(8, 8, 5, 0.0, 2, /*qkv_bias=*/true);
  FusedSelfAttention fused(FusedSelfAttentionOptions(8, 2).attention({.causal = Causal::BottomRight}));
  {
    const at::NoGradGuard no_grad;
    fused->qkv->weight.copy_(
        pack_qkv(separate->W_query->weight, separate->W_key->weight, separate->W_value->weight));
    fused->qkv->bias.copy_(pack_qkv(separate->W_query->bias, separate->W_key->bias, separate->W_value->bias));
    fused->proj->weight.copy_(separate->out_proj->weight);
    fused->proj->bias.copy_(separate->out_proj->bias);
  }
  const auto [y, weights] = fused->forward_with_weights(x);
  const auto [expected, expected_weights] = separate->forward_with_weights(x);
  CHECK_CLOSE(y, expected);
  CHECK_CLOSE(weights, expected_weights);

  const auto [query, key, value] = unpack_qkv(fused->qkv->weight);
  CHECK(bit_equal(query, separate->W_query->weight));
  CHECK(bit_equal(key, separate->W_key->weight));
  CHECK(bit_equal(value, separate->W_value->weight));
}

TEST_CASE("FusedSelfAttention obeys its mask", "[fused_self_attention]") {
  FusedSelfAttention module(8, 2);
  const auto x = at::randn({2, 5, 8});
  const auto [y, weights] = module->forward_with_weights(x, Mask::key_lengths(at::tensor({5, 3}, at::kLong)));
  CHECK(weights[1].slice(-1, 3).eq(0).all().item<bool>());
  CHECK_CLOSE(y[1].slice(0, 0, 3), module->forward(x[1].slice(0, 0, 3)));
  CHECK_CLOSE(y[0], module->forward(x[0]));
}

TEST_CASE("FusedSelfAttention is a torch::nn citizen", "[fused_self_attention]") {
  ModuleSuite<FusedSelfAttention> suite;
  suite.make = [] { return FusedSelfAttention(FusedSelfAttentionOptions(8, 2).dropout(0.25)); };
  suite.input_shape = {2, 5, 8};
  suite.keys = {"qkv.weight", "qkv.bias", "proj.weight", "proj.bias"};
  suite.unbatched = true;
  suite.run();
}

TEST_CASE("FusedSelfAttention names what is wrong", "[fused_self_attention][errors]") {
  FusedSelfAttention module(8, 2);
  CHECK(value_error([&] {
          module->forward(at::randn({2, 5, 4}));
        }) == "FusedSelfAttention: expected x of shape (B, T, 8) or (T, 8), got (2, 5, 4)");
  CHECK(type_error([&] {
          module->forward(at::randn({5, 8}, at::kDouble));
        }) == "FusedSelfAttention: expected x of dtype Float like the parameters, got Double");
  CHECK(value_error([] { FusedSelfAttention bad(12); }) ==
        "FusedSelfAttention: expected num_heads to divide embed_dim = 12, got 8");
  CHECK(value_error([] { FusedSelfAttention bad(0); }) ==
        "FusedSelfAttention: expected embed_dim > 0, got 0");
  CHECK(value_error([] { FusedSelfAttention bad(FusedSelfAttentionOptions(8).dropout(3)); }) ==
        "FusedSelfAttention: expected dropout in [0, 1], got 3");
  const auto w = at::randn({4, 3});
  CHECK(value_error([&] {
          pack_qkv(w, w, at::randn({4, 2}));
        }) == "pack_qkv: expected three tensors of one shape, got (4, 3), (4, 3), (4, 2)");
  CHECK(value_error([&] { pack_qkv(w, {}, w); }) ==
        "pack_qkv: expected key to be a tensor, got an undefined one");
  CHECK(value_error([&] { unpack_qkv(w); }) ==
        "unpack_qkv: expected a first size that 3 divides, got (4, 3)");
}
