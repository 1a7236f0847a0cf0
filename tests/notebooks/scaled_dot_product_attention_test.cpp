#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/core/options.h>
#include <attentive/notebooks/scaled_dot_product_attention.h>

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
