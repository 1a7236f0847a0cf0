#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <catch2/catch_test_macros.hpp>
#include <torch/nn/modules/dropout.h>

#include <attentive/core/options.h>
#include <attentive/notebooks/toy_notebook.h>

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
