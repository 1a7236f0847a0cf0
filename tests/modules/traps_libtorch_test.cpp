// Pitfalls of LibTorch for a port of the notebooks: each test shows the naive result next to this package's.

#include <cmath>

#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/linear.h>

#include <attentive/attentive.h>

#include "modules/golden_check.h"
#include "support/compare.h"

using namespace attentive;
using namespace attentive::test;

namespace {

// The notebook's causal module in a naive translation, with its mask as a bool buffer.
struct NaiveCausalImpl : torch::nn::Cloneable<NaiveCausalImpl> {
  NaiveCausalImpl() { reset(); }
  void reset() override {
    W = register_module("W", torch::nn::Linear(torch::nn::LinearOptions(3, 2).bias(false)));
    mask = register_buffer("mask", at::ones({6, 6}, at::kBool).triu(1));
    positions = register_buffer("positions", at::zeros({6}, at::kLong));
  }
  at::Tensor forward(const at::Tensor& x) {
    const auto y = W->forward(x);
    return at::softmax(y.matmul(y.t()).masked_fill(mask, -INFINITY), -1).matmul(y);
  }
  torch::nn::Linear W{nullptr};
  at::Tensor mask, positions;
};
TORCH_MODULE(NaiveCausal);

bool sees_future(const at::Tensor& weights) {
  return weights.triu(1).gt(0).any().item<bool>();
}

}  // namespace

TEST_CASE("Trap 9: to(double) turns a bool mask buffer into numbers", "[traps]") {
  NaiveCausal naive;
  CHECK(naive->forward(sentence()).defined());
  naive->to(at::kDouble);
  CHECK(naive->mask.scalar_type() == at::kDouble);
  CHECK(naive->positions.scalar_type() == at::kDouble);  // index buffers as well
  CHECK_THROWS(naive->forward(sentence().to(at::kDouble)));

  CausalAttention module(3, 2, 6, 0.0);
  module->to(at::kDouble);
  CHECK(module->named_buffers().size() == 0);
  CHECK_FALSE(sees_future(module->forward_with_weights(sentence().to(at::kDouble)).second));
  // The Python state dict has the buffer: it is checked and dropped, and written on request.
  auto state = state_dict(*module, {.causal_mask_buffers = true});
  CHECK(bit_equal(state.at("mask"), at::ones({6, 6}, at::kDouble).triu(1)));
  CausalAttention other(3, 2, 6, 0.0);
  load_state_dict(*other, state);
  CHECK_CLOSE(other->forward(sentence()), module->forward(sentence().to(at::kDouble)).to(at::kFloat));
  state["mask"] = at::ones({6, 6}).tril();
  CHECK_THROWS_AS(load_state_dict(*other, state), c10::ValueError);
  MultiHeadAttentionWrapper wrapper(3, 2, 6, 0.0, 2);
  CHECK(state_dict(*wrapper, {.causal_mask_buffers = true}).count("heads.1.mask") == 1);
}

TEST_CASE("masked_fill takes bool masks only; Mask takes integers too", "[traps]") {
  const auto x = sentence();
  const auto keep = at::ones({6, 6}).tril();
  CHECK_THROWS(x.matmul(x.t()).masked_fill(keep, 0.0));
  CHECK_THROWS(x.matmul(x.t()).masked_fill(keep.to(at::kLong), 0.0));
  CHECK_CLOSE(attention(x, x, x, {}, Mask::keep(keep.to(at::kLong))),
              attention(x, x, x, {.causal = Causal::BottomRight}));
}

TEST_CASE("torch::nn::MultiheadAttention adds a bool mask as 0 and 1", "[traps]") {
  at::manual_seed(2);
  torch::nn::MultiheadAttention libtorch(torch::nn::MultiheadAttentionOptions(8, 2));
  libtorch->eval();
  const auto x = at::randn({5, 1, 8});  // (T, B, C)
  const auto hidden = at::ones({5, 5}, at::kBool).triu(1);
  const auto lost = std::get<1>(libtorch->forward(x, x, x, /*key_padding_mask=*/{}, true, hidden));
  CHECK(sees_future(lost[0]));

  MultiHeadAttention causal(8, 8, 5, 0.0, 2);
  CHECK_FALSE(sees_future(causal->forward_with_weights(x.transpose(0, 1)).second));
  FusedSelfAttention masked(8, 2);
  CHECK_FALSE(sees_future(masked->forward_with_weights(x.transpose(0, 1), Mask::hide(hidden)).second));
}

TEST_CASE("torch::nn::MultiheadAttention makes NaN of a sequence that is all padding", "[traps]") {
  torch::nn::MultiheadAttention libtorch(torch::nn::MultiheadAttentionOptions(8, 2));
  const auto x = at::randn({5, 2, 8});
  auto padding = at::zeros({2, 5}, at::kBool);
  padding[1].fill_(true);
  CHECK(std::get<0>(libtorch->forward(x, x, x, padding)).isnan().any().item<bool>());
  FusedSelfAttention module(8, 2);
  const auto mask = Mask::key_keep(padding.bitwise_not());
  const auto y = module->forward(x.transpose(0, 1), mask);
  CHECK_CLOSE(y[1], module->proj->bias.expand({5, 8}));
  CHECK_CLOSE(module->forward_with_weights(x.transpose(0, 1), mask).first, y);
}

TEST_CASE("is_causal of PyTorch is aligned top-left", "[traps]") {
  const auto q = at::randn({1, 1, 2, 4}), k = at::randn({1, 1, 5, 4});
  const auto libtorch = at::scaled_dot_product_attention(q, k, k, {}, 0.0, /*is_causal=*/true);
  CHECK_CLOSE(libtorch[0][0][0], k[0][0][0]);  // the first of two new queries sees the first key only
  const auto weights =
      attention(q, k, k, {.causal = Causal::BottomRight}, AttentionExtras{.weights = Weights::Clean}).weights;
  CHECK(weights[0][0][0].gt(0).sum().item<int64_t>() == 4);
  CHECK(weights[0][0][1].gt(0).sum().item<int64_t>() == 5);
  CHECK_CLOSE(attention(q, k, k, {.causal = Causal::TopLeft}), libtorch);
}

TEST_CASE("clone() of a plain Cloneable consumes random numbers", "[traps]") {
  const auto next_after_clone = [](torch::nn::Module& module) {
    at::manual_seed(7);
    module.clone();
    return at::rand({3});
  };
  at::manual_seed(7);
  const auto undisturbed = at::rand({3});
  NaiveCausal naive;
  CHECK_FALSE(bit_equal(next_after_clone(*naive), undisturbed));
  MultiHeadAttentionWrapper wrapper(3, 2, 6, 0.0, 2);
  CHECK(bit_equal(next_after_clone(*wrapper), undisturbed));
}

TEST_CASE("C++ Linear is not Python's on three dimensions; the modules' projections are", "[traps]") {
  // With one token the softmax is 1, so only the projections remain.
  at::manual_seed(0);
  FusedSelfAttention module(768);
  const auto x = at::randn({64, 1, 768});
  const auto python = [](const torch::nn::Linear& layer, const at::Tensor& y) {
    return at::linear(y, layer->weight, layer->bias);
  };
  const auto value = python(module->qkv, x).slice(-1, 2 * 768).contiguous();
  CHECK(bit_equal(module->forward(x), python(module->proj, value)));

  const at::NoGradGuard no_grad;
  const auto patches = at::randn({32, 196, 768});
  const auto unfused = module->proj->forward(patches), fused = python(module->proj, patches);
  CHECK_CLOSE(unfused, fused);
  if (bit_equal(unfused, fused)) WARN("this machine's kernels round both ways of a Linear alike");
}

TEST_CASE("Weights are drawn in float32 whatever the default dtype becomes later", "[traps]") {
  at::manual_seed(5);
  SelfAttentionV1 exact(3, 2);
  at::manual_seed(5);
  const auto drawn_wide = at::rand({3, 2}, at::kDouble).to(at::kFloat);
  CHECK_FALSE(bit_equal(drawn_wide, exact->W_query.detach()));
  at::manual_seed(5);
  SelfAttentionV1 cast(3, 2);
  cast->to(at::kDouble);
  CHECK(bit_equal(cast->W_query.detach(), exact->W_query.detach().to(at::kDouble)));
}
