#include <ATen/ops/randn.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/notebooks/attention_blog.h>

#include "modules/golden_check.h"
#include "support/compare.h"
#include "support/errors.h"
#include "support/module_suite.h"

using namespace attentive;
using namespace attentive::test;

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
