// Runs every case that PyTorch wrote for torch.nn.MultiheadAttention.

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <attentive/compat/multihead_attention.h>

#include "compat/small_layers.h"
#include "support/compare.h"
#include "support/module_suite.h"
#include "support/parity_cases.h"

using namespace attentive;
using attentive::compat::MultiheadAttention;
using attentive::compat::MultiheadAttentionOptions;
using attentive::test::bools;
using attentive::test::kNaN;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

namespace {

at::Tensor output(const std::tuple<at::Tensor, at::Tensor>& result) {
  return std::get<0>(result);
}

MultiheadAttention batch_first(double dropout = 0.0) {
  at::manual_seed(1);
  MultiheadAttention module(MultiheadAttentionOptions(6, 2).batch_first(true).dropout(dropout));
  const at::NoGradGuard no_grad;
  for (auto& parameter : module->parameters()) parameter.copy_(at::randn(parameter.sizes()) / 2);
  return module;
}

}  // namespace

TEST_CASE("MultiheadAttention is a torch::nn citizen", "[compat][multihead_attention]") {
  test::ModuleSuite<MultiheadAttention> suite;
  suite.call = [](MultiheadAttention& m, const at::Tensor& x) { return output(m->forward(x, x, x)); };
  suite.own_parameters = [](MultiheadAttention& m) {
    return std::vector<at::Tensor*>{&m->in_proj_weight, &m->q_proj_weight, &m->k_proj_weight,
                                    &m->v_proj_weight,  &m->in_proj_bias,  &m->bias_k,
                                    &m->bias_v};
  };
  suite.sequential = false;

  SECTION("packed projections") {
    suite.make = [] {
      return MultiheadAttention(MultiheadAttentionOptions(6, 2).dropout(0.25).batch_first(true));
    };
    suite.input_shape = {2, 5, 6};
    suite.keys = {"in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"};
    suite.run();
  }
  SECTION("separate projections, learned and zero keys, unbatched") {
    suite.make = [] {
      return MultiheadAttention(
          MultiheadAttentionOptions(6, 2).dropout(0.25).kdim(6).vdim(3).add_bias_kv(true).add_zero_attn(
              true));
    };
    suite.call = [](MultiheadAttention& m, const at::Tensor& x) {
      return output(m->forward(x, x, x.slice(1, 0, 3)));
    };
    suite.input_shape = {4, 6};
    suite.keys = {"q_proj_weight", "k_proj_weight", "v_proj_weight",   "in_proj_bias",
                  "bias_k",        "bias_v",        "out_proj.weight", "out_proj.bias"};
    suite.run();
  }
  SECTION("no biases") {
    suite.make = [] { return MultiheadAttention(MultiheadAttentionOptions(6, 3).dropout(0.25).bias(false)); };
    suite.input_shape = {4, 2, 6};
    suite.keys = {"in_proj_weight", "out_proj.weight"};
    suite.run();
  }
}

TEST_CASE("MultiheadAttention: a query without keys yields the output bias",
          "[compat][multihead_attention]") {
  auto module = batch_first();
  const auto x = at::randn({2, 3, 6}).requires_grad_(true);
  auto padding = bools({2, 3});
  padding[1].fill_(true);
  for (const bool need_weights : {true, false}) {
    const auto [y, weights] = module->forward(x, x, x, padding, need_weights);
    CHECK_CLOSE(y[1], module->out_proj->bias.expand({3, 6}));
    if (need_weights) CHECK(weights[1].abs().max().item<float>() == 0.0f);
    x.mutable_grad() = at::Tensor();
    y.sum().backward();
    CHECK(x.grad()[1].abs().max().item<float>() == 0.0f);
    CHECK(x.grad().isfinite().all().item<bool>());
  }
}

TEST_CASE("MultiheadAttention: padding may hold NaN", "[compat][multihead_attention]") {
  auto module = batch_first();
  const auto query = at::randn({1, 2, 6});
  const auto memory = at::randn({1, 4, 6});
  const auto poisoned = memory.clone();
  poisoned.slice(1, 3).fill_(kNaN);
  auto padding = bools({1, 4});
  padding.slice(1, 3).fill_(true);
  const auto clean = output(module->forward(query, memory, memory, padding));
  CHECK(bit_equal(output(module->forward(query, poisoned, poisoned, padding)), clean));
  CHECK(clean.isfinite().all().item<bool>());
}

TEST_CASE("MultiheadAttention: bool masks hide where they are true", "[compat][multihead_attention]") {
  auto module = batch_first();
  const auto x = at::randn({2, 4, 6});
  const auto causal = bools({4, 4}, true).triu(1);
  const auto first = output(module->forward(x, x, x, {}, true, causal)).slice(1, 0, 2);
  const auto alone = x.slice(1, 0, 2);
  CHECK_CLOSE(first,
              output(module->forward(alone, alone, alone, {}, true, causal.slice(0, 0, 2).slice(1, 0, 2))));
  // One mask gives the same result as its copies for every head and item.
  CHECK_CLOSE(output(module->forward(x, x, x, {}, true, causal)),
              output(module->forward(x, x, x, {}, true, causal.expand({4, 4, 4}))));
  // C++ torch::nn::MultiheadAttention would add the 0 and 1 of the mask to the scores.
  CHECK_FALSE(difference(output(module->forward(x, x, x, {}, true, causal)),
                         output(module->forward(x, x, x, {}, true, causal.to(at::kFloat))))
                  .empty());
}

TEST_CASE("MultiheadAttention: a mask of N * H planes goes item by item, head by head",
          "[compat][multihead_attention]") {
  auto module = batch_first();
  const auto x = at::randn({3, 4, 6});
  auto mask = bools({6, 4, 4});
  mask[2 * 1 + 1].select(1, 2).fill_(true);  // item 1, head 1: key 2
  const auto weights = std::get<1>(module->forward(x, x, x, {}, true, mask, /*average=*/false));
  for (int64_t item = 0; item < 3; ++item) {
    for (int64_t head = 0; head < 2; ++head) {
      const bool zero = weights[item][head].select(1, 2).abs().max().item<float>() == 0.0f;
      CHECK(zero == (item == 1 && head == 1));
    }
  }
}

TEST_CASE("MultiheadAttention: is_causal is Python's hint", "[compat][multihead_attention]") {
  auto module = batch_first();
  const auto x = at::randn({1, 2, 6});
  const auto memory = at::randn({1, 4, 6});
  const auto nothing = bools({2, 4});
  const auto top_left = bools({2, 4}, true).triu(1);
  const auto run = [&](bool need_weights, const at::Tensor& mask, bool is_causal,
                       const at::Tensor& padding = {}) {
    return output(module->forward(x, memory, memory, padding, need_weights, mask, true, is_causal));
  };
  // Without weights, the flag replaces the mask; with weights or padding, the mask decides.
  CHECK_CLOSE(run(false, nothing, true), run(false, top_left, false));
  CHECK_CLOSE(run(true, nothing, true), run(true, nothing, false));
  CHECK_CLOSE(run(false, nothing, true, bools({1, 4})), run(false, nothing, false));
  CHECK_THROWS_MATCHES(
      run(false, {}, true), c10::ValueError,
      MessageMatches(ContainsSubstring("compat::MultiheadAttention: expected an attn_mask")));
}

TEST_CASE("MultiheadAttention returns the weights after dropout", "[compat][multihead_attention]") {
  auto module = batch_first(0.5);
  const auto x = at::randn({2, 5, 6});
  const auto weights = std::get<1>(module->forward(x, x, x, {}, true, {}, /*average=*/false));
  CHECK(weights.eq(0.0).sum().item<int64_t>() > 0);
  CHECK(std::get<1>(module->forward(x, x, x, {}, false)).defined() == false);
  module->eval();
  const auto clean = std::get<1>(module->forward(x, x, x));
  CHECK(clean.sizes() == at::IntArrayRef({2, 5, 5}));
  CHECK_CLOSE(clean.sum(-1), at::full({2, 5}, 1.0f));
}

TEST_CASE("MultiheadAttention: forms and shared inputs agree", "[compat][multihead_attention]") {
  auto module = batch_first();
  MultiheadAttention sequence_first(MultiheadAttentionOptions(6, 2));
  {
    const at::NoGradGuard no_grad;
    const auto from = module->named_parameters();
    for (auto& item : sequence_first->named_parameters()) item.value().copy_(from[item.key()]);
  }
  const auto x = at::randn({2, 4, 6});
  const auto [y, weights] = module->forward(x, x, x);
  const auto turned = x.transpose(0, 1);
  CHECK_CLOSE(output(sequence_first->forward(turned, turned, turned)), y.transpose(0, 1));
  const auto [one, one_weights] = sequence_first->forward(x[1], x[1], x[1]);
  CHECK_CLOSE(one, y[1]);
  CHECK_CLOSE(one_weights, weights[1]);
  CHECK_CLOSE(output(module->forward(x, x.clone(), x.clone())), y);
  const auto memory = at::randn({2, 3, 6});
  CHECK_CLOSE(output(module->forward(x, memory, memory)), output(module->forward(x, memory, memory.clone())));
}

TEST_CASE("MultiheadAttention: empty batch and empty sequences", "[compat][multihead_attention]") {
  auto module = batch_first();
  const auto empty_batch = at::zeros({0, 3, 6});
  CHECK(output(module->forward(empty_batch, empty_batch, empty_batch)).sizes() == empty_batch.sizes());
  const auto x = at::randn({2, 3, 6});
  const auto no_keys = at::zeros({2, 0, 6});
  CHECK_CLOSE(output(module->forward(x, no_keys, no_keys)), module->out_proj->bias.expand({2, 3, 6}));
}

TEST_CASE("MultiheadAttention: a mask changed before the backward pass raises or has no influence",
          "[compat][multihead_attention][changed_mask]") {
  const bool floating = GENERATE(false, true);
  const bool with_padding = GENERATE(false, true), with_mask = GENERATE(false, true);
  const auto backend = GENERATE(Backend::Reference, Backend::Torch, Backend::Native);
  INFO("floating " << floating << ", padding " << with_padding << ", mask " << with_mask << ", backend "
                   << to_string(backend));
  const BackendGuard guard(backend);
  const at::Tensor memory = at::randn({2, 4, 6});
  auto module = batch_first();
  const auto gradient = [&](bool changed) {
    const auto type = floating ? at::kFloat : at::kBool;
    auto padding = at::tensor({0, 0, 0, 1, 0, 1, 0, 0}, at::kLong).view({2, 4}).to(type);
    auto mask = at::ones({4, 4}, at::kLong).triu(2).to(type);
    const auto x = memory.clone().requires_grad_(true);
    const auto y = output(module->forward(x, x, x, with_padding ? padding : at::Tensor(), false,
                                          with_mask ? mask : at::Tensor()));
    if (changed) {
      padding.zero_();
      mask.zero_();
    }
    return torch::autograd::grad({y.square().sum()}, {x})[0];
  };
  const auto want = gradient(false);
  at::Tensor got;
  try {
    got = gradient(true);
  } catch (const c10::Error& error) {
    CHECK_THAT(error.what_without_backtrace(), ContainsSubstring("modified by an inplace operation"));
    return;
  }
  CHECK(bit_equal(got, want));
}

TEST_CASE("MultiheadAttention names every mistake", "[compat][multihead_attention]") {
  auto module = batch_first();
  const auto x = at::randn({2, 3, 6});
  const auto throws_value = [&](auto&& call, const char* text) {
    CHECK_THROWS_MATCHES(call(), c10::ValueError, MessageMatches(ContainsSubstring(text)));
  };
  const auto throws_type = [&](auto&& call, const char* text) {
    CHECK_THROWS_MATCHES(call(), c10::TypeError, MessageMatches(ContainsSubstring(text)));
  };
  throws_value([] { MultiheadAttention(6, 4); }, "expected num_heads to divide embed_dim = 6, got 4");
  throws_value([] { MultiheadAttention(6, 0); }, "expected num_heads > 0, got 0");
  throws_value([] { MultiheadAttention(0, 1); }, "expected embed_dim > 0, got 0");
  throws_value([] { MultiheadAttention(MultiheadAttentionOptions(6, 2).kdim(0)); },
               "expected kdim > 0, got 0");
  throws_value([] { MultiheadAttention(MultiheadAttentionOptions(6, 2).dropout(1.5)); }, "dropout");
  throws_value([&] { module->forward({}, x, x); }, "query");
  throws_value([&] { module->forward(x.unsqueeze(0), x, x); }, "expected query of shape (N, T, 6) or (T, 6)");
  throws_value([&] { module->forward(x, x[0], x); }, "expected key of rank 3");
  throws_value([&] { module->forward(x, x, x.slice(2, 0, 4)); }, "expected value of 6 features");
  throws_value([&] { module->forward(x, x, x.slice(1, 0, 2)); }, "key and value of the same length");
  throws_value([&] { module->forward(x, x.slice(0, 0, 1), x.slice(0, 0, 1)); }, "expected key of batch 2");
  throws_type([&] { module->forward(x, x.to(at::kDouble), x); }, "expected key of dtype Float");
  throws_value(
      [&] {
        module->forward(x, x, x, bools({3, 2}));
      },
      "expected key_padding_mask of shape (2, 3) (N, S), got (3, 2)");
  throws_value(
      [&] {
        module->forward(x[0], x[0], x[0], bools({1, 3}));
      },
      "expected key_padding_mask of shape (3,) (S), got (1, 3)");
  throws_type(
      [&] {
        module->forward(x, x, x, at::zeros({2, 3}, at::kLong));
      },
      "expected key_padding_mask to be bool (true hides) or floating");
  throws_value(
      [&] {
        module->forward(x, x, x, {}, true, bools({3, 4}));
      },
      "expected attn_mask of shape (3, 3) (L, S) or (4, 3, 3) (N * num_heads, L, S), got (3, 4)");
  throws_value([&] { module->forward(x, x, x, {}, true, bools({2, 3, 3})); }, "got (2, 3, 3)");
  throws_type(
      [&] {
        module->forward(x, x, x, {}, true, at::zeros({3, 3}, at::kInt));
      },
      "expected attn_mask to be bool (true hides) or floating");
  throws_type([&] { module->forward(x.to_sparse(), x, x); }, "expected query to be a dense tensor");
  throws_type(
      [&] {
        module->forward(x, x, x, {}, true, bools({3, 3}).to_sparse());
      },
      "compat::MultiheadAttention: expected attn_mask to be a dense tensor");
}

TEST_CASE("MultiheadAttention equals PyTorch on every recorded case", "[compat][multihead_attention]") {
  test::check_cases("torch#mha-*", 150);
}

TEST_CASE("MultiheadAttention drops what PyTorch drops for a seed", "[compat][multihead_attention]") {
  test::check_dropout_cases("dropout#torch.nn.MultiheadAttention-*");
}

// Dropout of the output draws in this order; the transformer layers' recorded cases hold its numbers.
TEST_CASE("MultiheadAttention: in training the output lies in memory as Python's",
          "[compat][multihead_attention]") {
  auto module = batch_first();
  const auto x = at::randn({2, 3, 6});
  const auto trained = output(module->forward(x, x, x));
  CHECK(trained.transpose(0, 1).is_contiguous());
  module->eval();
  CHECK_CLOSE(output(module->forward(x, x, x)), trained);
}
