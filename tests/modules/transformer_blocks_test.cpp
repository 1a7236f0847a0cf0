#include <cmath>
#include <limits>
#include <string>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <torch/csrc/autograd/autograd.h>

#include <attentive/files/state_dict.h>
#include <attentive/modules/multi_head_attention.h>
#include <attentive/modules/transformer_attention.h>
#include <attentive/modules/transformer_blocks.h>

#include "functional/elementwise.h"
#include "support/compare.h"
#include "support/errors.h"
#include "support/gradcheck.h"
#include "support/memory_meter.h"
#include "support/module_suite.h"

using namespace attentive;
using attentive::test::value_error;

TEST_CASE("FeedForward is linear, GELU by tanh, linear", "[feed_forward]") {
  FeedForward ff(6);
  const auto state = ff->named_parameters();
  const auto x = at::randn({2, 3, 6});
  const auto h = at::linear(x, state["layers.0.weight"], state["layers.0.bias"]);
  const auto gelu = 0.5 * h * (1 + (std::sqrt(2 / M_PI) * (h + 0.044715 * h.pow(3))).tanh());
  CHECK_WITHIN(ff->forward(x), at::linear(gelu, state["layers.2.weight"], state["layers.2.bias"]),
               {1e-5, 2e-6});
  CHECK(state["layers.0.weight"].sizes() == at::IntArrayRef({24, 6}));
  CHECK(value_error([&] {
          return ff->forward(at::randn({2, 3, 5}));
        }) == "FeedForward: expected x of shape (B, T, 6) or (T, 6), got (2, 3, 5)");
  CHECK(FeedForward(FeedForwardOptions(6).hidden_dim(0))->options.hidden_dim() == 24);
  CHECK(value_error([] { return FeedForward(FeedForwardOptions(6).hidden_dim(-1)); }) ==
        "FeedForward: expected hidden_dim > 0, got -1");
}

TEST_CASE("FeedForward is a torch::nn citizen", "[feed_forward]") {
  test::ModuleSuite<FeedForward> suite;
  suite.make = [] { return FeedForward(FeedForwardOptions(6).hidden_dim(10)); };
  suite.input_shape = {2, 5, 6};
  suite.keys = {"layers.0.weight", "layers.0.bias", "layers.2.weight", "layers.2.bias"};
  suite.has_dropout = false;
  suite.run();
}

TEST_CASE("FeedForward without gradients equals that with gradients", "[feed_forward][short]") {
  const bool gated = GENERATE(false, true);
  const auto activation = GENERATE(Activation::GeluTanh, Activation::Silu, Activation::Gelu);
  const int64_t tokens = GENERATE(1, 9, 32, 150);
  INFO((gated ? "gated " : "") << to_string(activation) << ", " << tokens << " tokens");
  FeedForward ff(FeedForwardOptions(24).hidden_dim(300).activation(activation).gated(gated));
  const auto x = at::randn({1, tokens, 24});
  const auto want = ff->forward(x);
  if (gated && activation == Activation::Silu) {
    const auto layer = [&](const std::string& name, const at::Tensor& input) {
      const auto state = ff->named_parameters();
      return at::linear(input, state[name + ".weight"], state[name + ".bias"]);
    };
    CHECK_WITHIN(want, layer("layers.2", at::silu(layer("gate", x)) * layer("layers.0", x)), {1e-5, 2e-6});
  }
  const at::NoGradGuard no_grad;
  CHECK_WITHIN(ff->forward(x), want, {1e-5, 2e-6});
  const auto half = at::kBFloat16;
  ff->to(half);
  CHECK_WITHIN(ff->forward(x.to(half)), want, {0, 0.02 * want.abs().max().item<double>()});
}

TEST_CASE("GELU's vector form equals ATen's, values and gradients", "[feed_forward][short]") {
  const auto check = [](const at::Tensor& values, const at::Tensor& grad) {
    const auto x = values.clone().requires_grad_(true), exact = values.to(at::kDouble).requires_grad_(true);
    const auto y = gelu_tanh(x), expected = at::gelu(exact, "tanh");
    CHECK_WITHIN(y, expected, {0, 3e-7 * values.abs().max().item<double>()});
    y.backward(grad);
    expected.backward(grad.to(at::kDouble));
    CHECK_WITHIN(x.grad(), exact.grad(), {0, 2e-6});
  };
  check(at::linspace(-30, 30, 60001), at::ones({60001}));
  check(at::linspace(-3, 3, 60001), at::ones({60001}));
  const auto values = at::randn({3, 1001, 17}), grad = at::randn({17, 1001, 3}).permute({2, 1, 0});
  check(values, grad);
  const auto edges = gelu_tanh(test::table({{0.0f, 1e20f, -1e38f, INFINITY, NAN}}))[0];
  CHECK(edges[0].item<float>() == 0.0f);
  CHECK(edges[1].item<float>() == 1e20f);
  CHECK(std::abs(edges[2].item<float>()) < 1e-6f);
  CHECK(edges[3].item<float>() == INFINITY);
  CHECK(std::isnan(edges[4].item<float>()));
}

namespace {

std::vector<std::string> with(std::vector<std::string> names, const std::vector<std::string>& more) {
  names.insert(names.end(), more.begin(), more.end());
  return names;
}

const std::vector<std::string> kAtt{"att.W_query.weight", "att.W_key.weight", "att.W_value.weight",
                                    "att.out_proj.weight", "att.out_proj.bias"};
const std::vector<std::string> kRest{"ff.layers.0.weight", "ff.layers.0.bias", "ff.layers.2.weight",
                                     "ff.layers.2.bias",   "norm1.scale",      "norm1.shift",
                                     "norm2.scale",        "norm2.shift"};

}  // namespace

TEST_CASE("TransformerBlock and an encoder block are torch::nn citizens", "[transformer_blocks]") {
  test::ModuleSuite<TransformerBlock> suite;
  suite.input_shape = {2, 4, 6};
  suite.keys = with(kAtt, kRest);
  suite.make = [] {
    return TransformerBlock(
        TransformerBlockOptions(TransformerAttentionOptions(6, 2).dropout(0.2)).dropout(0.2).hidden_dim(10));
  };
  suite.names();
  suite.clone_keeps_random_state();
  suite.save_and_load();
  suite.dtypes();
  suite.eval_and_train();
  suite.gradient_matches_differences();
  suite.in_sequential();
  suite.prints();
  suite.make = [] { return encoder_block(TransformerBlockOptions(6, 2).dropout(0.2).norm_first(false)); };
  suite.dtypes();
  suite.eval_and_train();
  suite.gradient_matches_differences();
}

TEST_CASE("TransformerBlock adds its sublayers to the residual stream", "[transformer_blocks]") {
  const auto x = at::randn({2, 4, 6});
  TransformerBlock pre(TransformerBlockOptions(6, 2));
  const auto h = x + pre->att->forward(pre->norm1->forward(x));
  CHECK_CLOSE(pre->forward(x), h + pre->ff->forward(pre->norm2->forward(h)));
  TransformerBlock post(TransformerBlockOptions(6, 2).norm_first(false));
  const auto g = post->norm1->forward(x + post->att->forward(x));
  CHECK_CLOSE(post->forward(x), post->norm2->forward(g + post->ff->forward(g)));
}

TEST_CASE("A decoder-only block is causal, an encoder block sees both directions", "[transformer_blocks]") {
  const auto x = at::randn({1, 5, 6});
  auto changed = x.clone();
  changed[0][3].normal_();  // not a constant shift, which the layer norm would remove
  TransformerBlock decoder(TransformerBlockOptions(6, 2));
  CHECK(bit_equal(decoder->forward(changed).narrow(1, 0, 3), decoder->forward(x).narrow(1, 0, 3)));
  auto encoder = encoder_block(TransformerBlockOptions(6, 2));
  for (int64_t t = 0; t < 5; ++t)
    CHECK_FALSE(bit_equal(encoder->forward(changed)[0][t], encoder->forward(x)[0][t]));
  // Masked padding does not change the result.
  const auto padding = Mask::key_lengths(at::tensor({3}));
  CHECK(bit_equal(encoder->forward(changed, padding).narrow(1, 0, 3),
                  encoder->forward(x, padding).narrow(1, 0, 3)));
}

TEST_CASE("DecoderBlock is a torch::nn citizen", "[transformer_blocks]") {
  const auto memory = at::randn({2, 3, 5});
  test::ModuleSuite<DecoderBlock> suite;
  suite.make = [] {
    return DecoderBlock(
        TransformerBlockOptions(TransformerAttentionOptions(6, 2).dropout(0.2)).dropout(0.2).memory_dim(5));
  };
  suite.input_shape = {2, 4, 6};
  suite.keys = with(kAtt, with({"cross.W_query.weight", "cross.W_key.weight", "cross.W_value.weight",
                                "cross.out_proj.weight", "cross.out_proj.bias"},
                               with(kRest, {"norm3.scale", "norm3.shift"})));
  suite.call = [&](DecoderBlock& m, const at::Tensor& x) {
    return m->forward(x, memory.to(x.scalar_type()));
  };
  suite.names();
  suite.clone_keeps_random_state();
  suite.save_and_load();
  suite.dtypes();
  suite.eval_and_train();
  suite.gradient_matches_differences();
  suite.prints();
}

TEST_CASE("DecoderBlock attends to itself, then to the memory", "[transformer_blocks]") {
  const auto x = at::randn({2, 4, 6}), memory = at::randn({2, 3, 6});
  DecoderBlock block(TransformerBlockOptions(6, 2));
  const auto h = x + block->att->forward(block->norm1->forward(x));
  const auto g = h + block->cross->forward(block->norm2->forward(h), memory);
  CHECK_CLOSE(block->forward(x, memory), g + block->ff->forward(block->norm3->forward(g)));
  // The block is causal in x and does not depend on masked memory.
  auto changed = x.clone();
  changed.narrow(1, 2, 2) += 1;
  CHECK(
      bit_equal(block->forward(changed, memory).narrow(1, 0, 2), block->forward(x, memory).narrow(1, 0, 2)));
  const auto lengths = Mask::key_lengths(at::tensor({2, 2}));
  auto other = memory.clone();
  other.narrow(1, 2, 1) += 1;
  CHECK(bit_equal(block->forward(x, other, {}, lengths), block->forward(x, memory, {}, lengths)));
  CHECK_FALSE(bit_equal(block->forward(x, other), block->forward(x, memory)));
  CHECK(value_error([&] {
          return block->forward(x, at::randn({2, 3, 5}));
        }) == "CrossAttention: expected memory of shape (B, T, 6) or (T, 6), got (2, 3, 5)");
  CHECK(value_error([] { return DecoderBlock(TransformerBlockOptions(6, 2).dropout(2)); }) ==
        "DecoderBlock: expected dropout in [0, 1], got 2");
}

TEST_CASE("A checkpointed block has the same bits", "[transformer_blocks][activation_checkpoint]") {
  const auto results = [](bool checkpoint, bool decoder) {
    at::manual_seed(4);
    const auto options = TransformerBlockOptions(TransformerAttentionOptions(6, 2).dropout(0.2))
                             .dropout(0.2)
                             .checkpoint(checkpoint);
    const auto x = at::randn({2, 5, 6}).requires_grad_(true),
               memory = at::randn({2, 4, 6}).requires_grad_(true);
    TransformerBlock block(options);
    DecoderBlock other(options);
    const auto mask = Mask::key_lengths(at::tensor({3, 4}));
    const auto y = decoder ? other->forward(x, memory, {}, mask) : block->forward(x);
    block->eval();
    other->eval();
    y.sin().sum().backward();
    std::vector<at::Tensor> found{y.detach(), x.grad()};
    if (decoder) found.push_back(memory.grad());
    for (const auto& p : decoder ? other->parameters() : block->parameters()) found.push_back(p.grad());
    return found;
  };
  for (const bool decoder : {false, true}) {
    const auto got = results(true, decoder), want = results(false, decoder);
    REQUIRE(got.size() == want.size());
    for (size_t i = 0; i < got.size(); ++i) CHECK(bit_equal(got[i], want[i]));
  }
}

TEST_CASE("A checkpointed block keeps its inputs alone", "[transformer_blocks][activation_checkpoint]") {
  const auto kept = [](bool checkpoint) {
    TransformerBlock block(
        TransformerBlockOptions(TransformerAttentionOptions(32, 1)).checkpoint(checkpoint));
    const auto x = at::randn({1, 256, 32}).requires_grad_(true);
    const test::MemoryMeter meter;
    auto y = x;
    for (int i = 0; i < 8; ++i) y = block->forward(y);
    return meter.peak();
  };
  CHECK(kept(true) * 3 < kept(false));
}

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
