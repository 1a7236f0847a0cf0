#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <catch2/catch_test_macros.hpp>
#include <torch/nn/modules/dropout.h>

#include <attentive/core/options.h>
#include <attentive/notebooks/multi_head_self_attention.h>

#include "modules/golden_check.h"
#include "support/compare.h"
#include "support/errors.h"
#include "support/golden.h"
#include "support/module_suite.h"

using namespace attentive;
using namespace attentive::test;

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
