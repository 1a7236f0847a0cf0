#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <catch2/catch_test_macros.hpp>
#include <torch/nn/modules/dropout.h>

#include <attentive/core/options.h>
#include <attentive/modules/multi_head_attention.h>
#include <attentive/notebooks/attention_blog.h>
#include <attentive/notebooks/toy_notebook.h>
#include <attentive/notebooks/vision_transformer.h>

#include "modules/golden_check.h"
#include "support/compare.h"
#include "support/errors.h"
#include "support/golden.h"
#include "support/module_suite.h"

using namespace attentive;
using namespace attentive::test;

namespace {

GoldenModule notebook_scaled_dot_product_attention() {
  return {.inputs = {"Q", "K", "V"},
          .draws_inputs = true,
          .make = [] { return ScaledDotProductAttention().ptr(); },
          .call =
              [](torch::nn::Module& module, const Inputs& inputs, const Mask& mask, Weights which) {
                return dynamic_cast<ScaledDotProductAttentionImpl&>(module).forward_with_weights(
                    inputs[0], inputs[1], inputs[2], mask, which);
              }};
}

}  // namespace

TEST_CASE("ScaledDotProductAttention equals PyTorch", "[scaled_dot_product_attention]") {
  check_golden("ScaledDotProductAttention", notebook_scaled_dot_product_attention(), at::kCPU);
  check_golden("ScaledDotProductAttention.mask", notebook_scaled_dot_product_attention(), at::kCPU);
}

TEST_CASE("ScaledDotProductAttention equals PyTorch on CUDA", "[scaled_dot_product_attention][cuda]") {
  check_golden("ScaledDotProductAttention.mask", notebook_scaled_dot_product_attention(), cuda_or_skip());
}

TEST_CASE("ScaledDotProductAttention returns weights after dropout, and clean ones on request",
          "[scaled_dot_product_attention]") {
  ScaledDotProductAttention module(0.5);
  const DropoutStreamGuard guard(DropoutStream::Aten);
  const auto q = at::randn({2, 5, 4}), k = at::randn({2, 6, 4}), v = at::randn({2, 6, 3});
  at::manual_seed(9);
  const auto [output, dropped] = module->forward(q, k, v);
  at::manual_seed(9);
  const auto [same, clean] = module->forward_with_weights(q, k, v);
  CHECK(bit_equal(output, same));
  CHECK_CLOSE(clean.sum(-1), at::ones({2, 5}));
  CHECK(dropped.eq(0).any().item<bool>());
  CHECK_CLOSE(dropped, clean.masked_fill(dropped.eq(0), 0.0) * 2);
  CHECK_CLOSE(output, at::matmul(dropped, v));

  at::manual_seed(9);
  const auto [fast, none] = module->forward_with_weights(q, k, v, {}, Weights::None);
  CHECK_CLOSE(fast, output);
  CHECK_FALSE(none.defined());

  module->eval();
  CHECK(bit_equal(module->forward(q, k, v).second, module->forward_with_weights(q, k, v).second));
}

TEST_CASE("ScaledDotProductAttention takes any leading sizes and its options",
          "[scaled_dot_product_attention]") {
  ScaledDotProductAttention module(
      ScaledDotProductAttentionOptions().attention({.causal = Causal::BottomRight}));
  const auto q = at::randn({2, 3, 5, 4});
  const auto [output, weights] = module->forward(q, q, q);
  CHECK(output.sizes() == q.sizes());
  CHECK(weights.sizes() == at::IntArrayRef({2, 3, 5, 5}));
  CHECK(weights.triu(1).eq(0).all().item<bool>());
  CHECK_CLOSE(module->forward(q[1][2], q[1][2], q[1][2]).first, output[1][2]);
}

TEST_CASE("ScaledDotProductAttention is a torch::nn citizen", "[scaled_dot_product_attention]") {
  ModuleSuite<ScaledDotProductAttention> suite;
  suite.make = [] { return ScaledDotProductAttention(0.25); };
  suite.input_shape = {2, 5, 6};
  suite.call = [](ScaledDotProductAttention& m, const at::Tensor& x) {
    return m->forward(x, 0.5 * x, x * x).first;
  };
  suite.sequential = false;
  suite.unbatched = true;
  suite.run();
}

TEST_CASE("ScaledDotProductAttention names what is wrong", "[scaled_dot_product_attention][errors]") {
  CHECK(value_error([] { ScaledDotProductAttention bad(1.5); }) ==
        "ScaledDotProductAttention: expected dropout in [0, 1], got 1.5");
  CHECK(value_error([] {
          ScaledDotProductAttention bad(ScaledDotProductAttentionOptions().attention({.scale = 0.0}));
        }) == "ScaledDotProductAttention: expected scale to be finite and not 0, got 0");
  // Tensors are passed to attention() unchanged, and its messages are returned.
  ScaledDotProductAttention module;
  const auto x = at::randn({2, 5, 4});
  CHECK(value_error([&] {
          module->forward(x, at::randn({2, 5, 3}), x);
        }) == "attention: expected k of head_dim 4 like q, got k of shape (2, 5, 3)");
}

namespace {

GoldenModule notebook_multi_head_self_attention(int64_t d_model, int64_t heads, double dropout) {
  return {.draws_inputs = true,
          .make = [=] { return MultiHeadSelfAttention(d_model, heads, dropout).ptr(); },
          .call = bind_one_input<MultiHeadSelfAttention>()};
}

}  // namespace

TEST_CASE("MultiHeadSelfAttention equals PyTorch", "[multi_head_self_attention]") {
  check_golden("MultiHeadSelfAttention", notebook_multi_head_self_attention(128, 4, 0.1), at::kCPU);
  check_golden("MultiHeadSelfAttention.padding", notebook_multi_head_self_attention(8, 2, 0.0), at::kCPU);
  check_golden("MultiHeadSelfAttention.causal", notebook_multi_head_self_attention(8, 2, 0.0), at::kCPU);
}

TEST_CASE("MultiHeadSelfAttention equals PyTorch in training", "[multi_head_self_attention]") {
  check_training("MultiHeadSelfAttention.train", notebook_multi_head_self_attention(128, 4, 0.1));
}

TEST_CASE("MultiHeadSelfAttention equals PyTorch on CUDA", "[multi_head_self_attention][cuda]") {
  const auto device = cuda_or_skip();
  check_golden("MultiHeadSelfAttention", notebook_multi_head_self_attention(128, 4, 0.1), device);
  check_golden("MultiHeadSelfAttention.padding", notebook_multi_head_self_attention(8, 2, 0.0), device);
}

TEST_CASE("MultiHeadSelfAttention prints the toy notebook's shapes", "[multi_head_self_attention]") {
  at::manual_seed(42);
  const auto x = at::randn({2, 5, 128});
  MultiHeadSelfAttention module(128, 4, 0.1);
  const auto [y, weights] = module->forward(x);
  CHECK(y.sizes() == at::IntArrayRef({2, 5, 128}));
  CHECK(weights.sizes() == at::IntArrayRef({2, 4, 5, 5}));
}

TEST_CASE("MultiHeadSelfAttention drops weights first, then the output, with one generator",
          "[multi_head_self_attention]") {
  const DropoutStreamGuard guard(DropoutStream::Aten);
  MultiHeadSelfAttention module(8, 2, 0.5);
  const auto x = at::randn({2, 4, 8});
  at::manual_seed(3);
  const auto [y, weights] = module->forward(x);
  const auto next = at::rand({4});

  // The expected result is composed by hand with two nn::Dropout.
  at::manual_seed(3);
  torch::nn::Dropout drop(0.5);
  module->eval();
  const auto clean = [&] {
    const BackendGuard same(Backend::Reference);  // which computes the dropped weights, too
    return module->forward(x).second;
  }();
  const auto dropped = drop->forward(clean);
  CHECK(bit_equal(weights, dropped));
  const auto value = module->W_v->forward(x).view({2, 4, 2, 4}).transpose(1, 2);
  const auto context = at::matmul(dropped, value).transpose(1, 2).reshape({2, 4, 8});
  const auto by_hand = drop->forward(module->W_o->forward(context));
  CHECK(bit_equal(y.eq(0), by_hand.eq(0)));
  CHECK_CLOSE(y, by_hand);
  CHECK(bit_equal(at::rand({4}), next));
}

TEST_CASE("MultiHeadSelfAttention returns clean weights on request", "[multi_head_self_attention]") {
  MultiHeadSelfAttention module(8, 2, 0.5);
  const auto x = at::randn({3, 4, 8});
  CHECK_CLOSE(module->forward_with_weights(x).second.sum(-1), at::ones({3, 2, 4}));
  CHECK(difference(module->forward(x).second.sum(-1), at::ones({3, 2, 4})) != "");
  CHECK_FALSE(module->forward_with_weights(x, {}, Weights::None).second.defined());
}

TEST_CASE("MultiHeadSelfAttention is a torch::nn citizen", "[multi_head_self_attention]") {
  ModuleSuite<MultiHeadSelfAttention> suite;
  suite.make = [] { return MultiHeadSelfAttention(8, 2, 0.25); };
  suite.input_shape = {2, 5, 8};
  suite.keys = {"W_q.weight", "W_k.weight", "W_v.weight", "W_o.weight"};
  suite.call = [](MultiHeadSelfAttention& m, const at::Tensor& x) { return m->forward(x).first; };
  suite.sequential = false;
  suite.unbatched = true;
  suite.run();
}

TEST_CASE("MultiHeadSelfAttention names what is wrong", "[multi_head_self_attention][errors]") {
  MultiHeadSelfAttention module(8, 2);
  CHECK(value_error([&] {
          module->forward(at::randn({2, 5, 4}));
        }) == "MultiHeadSelfAttention: expected x of shape (B, T, 8) or (T, 8), got (2, 5, 4)");
  CHECK(type_error([&] {
          module->forward(at::randn({5, 8}, at::kDouble));
        }) == "MultiHeadSelfAttention: expected x of dtype Float like the parameters, got Double");
  const auto make = [](int64_t d_model, int64_t heads, double dropout) {
    return value_error([=] { MultiHeadSelfAttention bad(d_model, heads, dropout); });
  };
  CHECK(make(0, 2, 0.0) == "MultiHeadSelfAttention: expected d_model > 0, got 0");
  CHECK(make(8, 3, 0.0) == "MultiHeadSelfAttention: expected num_heads to divide d_model = 8, got 3");
  CHECK(make(8, 2, -1.0) == "MultiHeadSelfAttention: expected dropout in [0, 1], got -1");
}

namespace {

GoldenModule blog_module() {
  return {.inputs = {"values", "keys", "query"},
          .draws_inputs = true,
          .make = [] { return SharedHeadAttention(8, 2).ptr(); },
          .call =
              [](torch::nn::Module& module, const Inputs& inputs, const Mask& mask, Weights which) {
                return dynamic_cast<SharedHeadAttentionImpl&>(module).forward_with_weights(
                    inputs[0], inputs[1], inputs[2], mask, which);
              }};
}

}  // namespace

TEST_CASE("SharedHeadAttention equals PyTorch", "[shared_head_attention]") {
  check_golden("SharedHeadAttention", blog_module(), at::kCPU);
  check_golden("SharedHeadAttention.mask", blog_module(), at::kCPU);
}

TEST_CASE("SharedHeadAttention equals PyTorch on CUDA", "[shared_head_attention][cuda]") {
  check_golden("SharedHeadAttention.mask", blog_module(), cuda_or_skip());
}

TEST_CASE("SharedHeadAttention takes values, keys, query in this order", "[shared_head_attention]") {
  SharedHeadAttention module(8, 2);
  const auto values = at::randn({2, 6, 8}), keys = at::randn({2, 6, 8}), query = at::randn({2, 4, 8});
  const auto [y, weights] = module->forward_with_weights(values, keys, query);
  CHECK(y.sizes() == query.sizes());
  CHECK(weights.sizes() == at::IntArrayRef({2, 2, 4, 6}));
  // The output is linear in the values (except for the bias of fc_out); the weights do not depend on them.
  const auto [doubled, same] = module->forward_with_weights(2 * values, keys, query);
  CHECK(bit_equal(same, weights));
  CHECK_CLOSE(doubled - module->fc_out->bias, 2 * (y - module->fc_out->bias));
  CHECK(difference(module->forward_with_weights(values, 2 * keys, query).second, weights) != "");
}

TEST_CASE("SharedHeadAttention is a torch::nn citizen", "[shared_head_attention]") {
  ModuleSuite<SharedHeadAttention> suite;
  suite.make = [] { return SharedHeadAttention(8, 2); };
  suite.input_shape = {2, 5, 8};
  suite.keys = {"values.weight", "keys.weight", "queries.weight", "fc_out.weight", "fc_out.bias"};
  suite.call = [](SharedHeadAttention& m, const at::Tensor& x) {
    return m->forward(x * x, x, x.slice(-2, 0, 3));
  };
  suite.sequential = false;
  suite.has_dropout = false;
  suite.unbatched = true;
  suite.run();
}

TEST_CASE("SharedHeadAttention names what is wrong", "[shared_head_attention][errors]") {
  SharedHeadAttention module(8, 2);
  const auto ok = at::randn({2, 5, 8});
  const auto value = [&](const at::Tensor& values, const at::Tensor& keys, const at::Tensor& query) {
    return value_error([&] { module->forward(values, keys, query); });
  };
  CHECK(value(at::randn({2, 5, 4}), ok, ok) ==
        "SharedHeadAttention: expected values of shape (B, T, 8) or (T, 8), got (2, 5, 4)");
  CHECK(value(ok, at::randn({8}), ok) ==
        "SharedHeadAttention: expected keys of shape (B, T, 8) or (T, 8), got (8,)");
  CHECK(value(ok, ok, {}) == "SharedHeadAttention: expected query to be a tensor, got an undefined one");
  CHECK(value(ok, at::randn({2, 6, 8}), ok) ==
        "SharedHeadAttention: expected as many values as keys, got 5 and 6");
  CHECK(value(ok, ok, at::randn({3, 5, 8})) ==
        "SharedHeadAttention: expected values of the batch size of query, got values (2, 5, 8), query (3, 5, "
        "8)");
  CHECK(value(ok, ok[0], ok) ==
        "SharedHeadAttention: expected keys of the batch size of query, got keys (5, 8), query (2, 5, 8)");
  CHECK(type_error([&] { module->forward(ok, ok.to(at::kDouble), ok); }) ==
        "SharedHeadAttention: expected keys of dtype Float like the parameters, got Double");
  CHECK(value_error([] { SharedHeadAttention bad(8, 3); }) ==
        "SharedHeadAttention: expected heads to divide embed_size = 8, got 3");
  CHECK(value_error([] { SharedHeadAttention bad(8, 0); }) ==
        "SharedHeadAttention: expected heads > 0, got 0");
  CHECK(value_error([] { SharedHeadAttention bad(0, 1); }) ==
        "SharedHeadAttention: expected embed_size > 0, got 0");
}

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
