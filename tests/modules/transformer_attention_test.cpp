#include <limits>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>
#include <catch2/catch_test_macros.hpp>
#include <torch/csrc/autograd/autograd.h>

#include <attentive/files/state_dict.h>
#include <attentive/modules/multi_head_attention.h>
#include <attentive/modules/transformer_attention.h>

#include "support/compare.h"
#include "support/errors.h"
#include "support/gradcheck.h"
#include "support/module_suite.h"

using namespace attentive;
using attentive::test::value_error;

TEST_CASE("TransformerAttention draws and computes as MultiHeadAttention", "[transformer_attention]") {
  at::manual_seed(123);
  MultiHeadAttention notebook(6, 6, 5, 0.0, 2, /*qkv_bias=*/true);
  at::manual_seed(123);
  TransformerAttention transformer(TransformerAttentionOptions(6, 2).context_length(5).qkv_bias(true));
  for (const auto& item : notebook->named_parameters()) {
    CHECK(bit_equal(item.value(), transformer->named_parameters()[item.key()]));
  }
  const auto x = at::randn({2, 5, 6});
  CHECK_WITHIN(transformer->forward(x), notebook->forward(x), {1e-5, 2e-6});
}

TEST_CASE("TransformerAttention is a torch::nn citizen", "[transformer_attention]") {
  test::ModuleSuite<TransformerAttention> suite;
  suite.make = [] {
    return TransformerAttention(TransformerAttentionOptions(8, 4)
                                    .num_kv_heads(2)
                                    .qkv_bias(true)
                                    .dropout(0.25)
                                    .context_length(5)
                                    .rotary(RotaryPositionsOptions(2)));
  };
  suite.input_shape = {2, 5, 8};
  suite.keys = {"W_query.weight", "W_query.bias", "W_key.weight",    "W_key.bias",
                "W_value.weight", "W_value.bias", "out_proj.weight", "out_proj.bias"};
  suite.run();
}

TEST_CASE("Normalized queries and keys and a gate are what their formulas say", "[transformer_attention]") {
  at::manual_seed(5);
  TransformerAttention plain(TransformerAttentionOptions(12, 3).qkv_bias(true));
  at::manual_seed(5);
  TransformerAttention both(
      TransformerAttentionOptions(12, 3).qkv_bias(true).qk_norm(true).output_gate(true));
  // Parameters that both modules have are drawn equally, because the gate is drawn last.
  for (const auto& item : plain->named_parameters())
    CHECK(bit_equal(item.value(), both->named_parameters()[item.key()]));
  {
    const at::NoGradGuard no_grad;
    both->q_norm->weight.uniform_(0.5, 2.0);
    both->k_norm->weight.uniform_(0.5, 2.0);
  }
  const auto x = at::randn({2, 7, 12});
  const auto heads = [&](torch::nn::Linear layer) {
    return layer->forward(x).view({2, 7, 3, 4}).transpose(1, 2);
  };
  const auto normed = [](const at::Tensor& h, const RMSNorm& norm) {
    return norm->weight * h / (h.square().mean(-1, true) + norm->options.eps()).sqrt();
  };
  const auto scores =
      normed(heads(both->W_query), both->q_norm).matmul(normed(heads(both->W_key), both->k_norm).mT()) / 2.0;
  const auto hidden = at::ones({7, 7}, at::kBool).triu(1);
  const auto attended = scores.masked_fill(hidden, -std::numeric_limits<double>::infinity())
                            .softmax(-1)
                            .matmul(heads(both->W_value));
  const auto gated = attended.transpose(1, 2).reshape({2, 7, 12}) * both->W_gate->forward(x).sigmoid();
  CHECK_WITHIN(both->forward(x), both->out_proj->forward(gated), {1e-5, 2e-6});
}

TEST_CASE("TransformerAttention with a gate and norms is a torch::nn citizen", "[transformer_attention]") {
  test::ModuleSuite<TransformerAttention> suite;
  suite.make = [] {
    return TransformerAttention(
        TransformerAttentionOptions(8, 4).num_kv_heads(2).qk_norm(true).output_gate(true));
  };
  suite.input_shape = {2, 5, 8};
  suite.keys = {"W_query.weight", "W_key.weight",  "W_value.weight", "out_proj.weight",
                "out_proj.bias",  "q_norm.weight", "k_norm.weight",  "W_gate.weight"};
  suite.has_dropout = false;
  suite.meta = false;  // LibTorch has no RMS norm for meta tensors
  suite.run();
}

TEST_CASE("The projections have second derivatives and one-sided gradients", "[transformer_attention]") {
  TransformerAttention m(TransformerAttentionOptions(4, 2).qkv_bias(true).attention(
      {.causal = Causal::BottomRight, .backend = Backend::Reference}));
  m->to(at::kDouble);
  const auto x = at::randn({1, 3, 4}, at::kDouble).requires_grad_(true);
  std::vector<at::Tensor> leaves = m->parameters();
  leaves.push_back(x);
  CHECK(test::gradcheck_leaves(
            [&] {
              const at::AutoGradMode grad(true);  // also while finite differences are computed
              const auto y = m->forward(x).square().sum();
              const auto grads = torch::autograd::grad({y}, {x, m->W_key->weight}, {}, true, true);
              return grads[0].square().sum() + grads[1].square().sum();
            },
            leaves) == "");
  // Some weights are frozen, and the input needs no gradient.
  m->W_key->weight.requires_grad_(false);
  m->zero_grad();
  m->forward(x.detach()).sum().backward();
  CHECK_FALSE(m->W_key->weight.grad().defined());
  CHECK(m->W_query->weight.grad().defined());
}

TEST_CASE("TransformerAttention keeps absolute positions and masks through a cache",
          "[transformer_attention]") {
  const at::NoGradGuard no_grad;
  TransformerAttention m(TransformerAttentionOptions(8, 2).rotary(RotaryPositionsOptions(2)));
  const auto x = at::randn({2, 7, 8});
  const auto lengths = Mask::key_keep(at::tensor({1, 1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1}).view({2, 7}));
  const auto whole = m->forward(x, lengths);
  DenseKVCache cache({.batch = 2, .num_kv_heads = 2, .head_dim = 4}, 7);
  m->forward_cached(x.narrow(1, 0, 4), cache, 0, Mask::key_keep(lengths.key_keep_terms()[0].narrow(1, 0, 4)));
  CHECK_WITHIN(m->forward_cached(x.narrow(1, 4, 3), cache, 0, lengths), whole.narrow(1, 4, 3), {0, 1e-5});
}

TEST_CASE("TransformerAttention refuses caches and options without meaning, by name",
          "[transformer_attention]") {
  const at::NoGradGuard no_grad;
  DenseKVCache cache({.num_kv_heads = 2, .head_dim = 4}, 7);
  TransformerAttention encoder(TransformerAttentionOptions(8, 2).attention({}));
  CHECK(value_error([&] {
          return encoder->forward_cached(at::randn({1, 3, 8}), cache, 0);
        }) == "TransformerAttention: expected bottom-right causal attention with a cache, got none");
  TransformerAttention m(TransformerAttentionOptions(8, 2).context_length(4));
  CHECK(value_error([&] {
          return m->forward_cached(at::randn({1, 3, 8}), cache, 1);
        }) == "TransformerAttention: expected a layer of the cache in [0, 1), got 1");
  m->forward_cached(at::randn({1, 3, 8}), cache, 0);
  CHECK(value_error([&] {
          return m->forward_cached(at::randn({1, 3, 8}), cache, 0);
        }) == "TransformerAttention: expected at most context_length = 4 tokens, got 6");
  CHECK(value_error([&] {
          return m->forward(at::randn({1, 3, 7}));
        }) == "TransformerAttention: expected x of shape (B, T, 8) or (T, 8), got (1, 3, 7)");
  CHECK(value_error([] {
          return TransformerAttention(
              TransformerAttentionOptions(8, 2).rotary(RotaryPositionsOptions(2).base(0)));
        }) == "RotaryPositions: expected base > 0, got 0");
  CHECK(value_error([] { return TransformerAttention(TransformerAttentionOptions(8, 0)); }) ==
        "TransformerAttention: expected num_heads > 0, got 0");
}
