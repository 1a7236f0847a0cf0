#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/core/options.h>
#include <attentive/functional/attention.h>
#include <attentive/functional/heads_and_windows.h>
#include <attentive/modules/grouped_query_attention.h>
#include <attentive/modules/multi_head_attention.h>

#include "modules/golden_check.h"
#include "support/compare.h"
#include "support/errors.h"
#include "support/module_suite.h"

using namespace attentive;
using attentive::test::sentence;
using attentive::test::table;

namespace {

GroupedQueryAttentionOptions small() {
  return GroupedQueryAttentionOptions(6, 8, 5, 0.25, 4, 2, /*qkv_bias=*/true);
}

void copy_parameters(torch::nn::Module& to, const torch::nn::Module& from) {
  const at::NoGradGuard no_grad;
  const auto source = from.named_parameters();
  for (auto& item : to.named_parameters()) item.value().copy_(source[item.key()]);
}

}  // namespace

TEST_CASE("GroupedQueryAttention gives the numbers of the book's class", "[grouped_query_attention]") {
  at::manual_seed(123);
  GroupedQueryAttention gqa(3, 8, 6, 0.0, /*num_heads=*/4, /*num_kv_heads=*/2);
  const auto y = gqa->forward(sentence());
  CHECK_CLOSE(y.index_select(0, at::tensor({1, 5})),
              table({{-0.34268486f, 0.04827811f, 0.33134496f, 0.04253913f, -0.18585683f, 0.22435118f,
                      -0.52441114f, 0.08214526f},
                     {-0.33283371f, 0.05574179f, 0.27313572f, 0.07295006f, -0.16246672f, 0.13167424f,
                      -0.47421008f, 0.04082715f}}));
}

TEST_CASE("GroupedQueryAttention is a torch::nn citizen", "[grouped_query_attention]") {
  test::ModuleSuite<GroupedQueryAttention> suite;
  suite.input_shape = {2, 5, 6};
  suite.own_parameters = [](GroupedQueryAttention& m) { return std::vector<at::Tensor*>{&m->sinks}; };
  const std::vector<std::string> keys = {"W_key.weight",   "W_key.bias",   "W_value.weight", "W_value.bias",
                                         "W_query.weight", "W_query.bias", "out_proj.weight"};
  SECTION("as in the book") {
    suite.make = [] { return GroupedQueryAttention(small()); };
    suite.keys = keys;
    suite.run();
  }
  SECTION("with everything") {
    suite.make = [] {
      return GroupedQueryAttention(small().out_bias(true).alibi(true).sinks(true).attention(
          {.scale = 0.3, .causal = Causal::BottomRight, .window = {2, 0}, .softcap = 5.0}));
    };
    suite.keys = keys;
    suite.keys.insert(suite.keys.begin(), "sinks");
    suite.keys.emplace_back("out_proj.bias");
    suite.meta = false;  // ATen has no meta kernel for the distance |i - j|
    suite.run();
  }
}

TEST_CASE("GroupedQueryAttention: a group shares its key and value head", "[grouped_query_attention]") {
  const auto x = at::randn({2, 5, 6});
  GroupedQueryAttention gqa(small().out_bias(true));
  gqa->eval();
  // A multi-head module in which every key head is copied once per query head gives the same result.
  MultiHeadAttention mha(6, 8, 5, 0.0, 4, /*qkv_bias=*/true);
  const at::NoGradGuard no_grad;
  const auto repeat = [](const at::Tensor& rows) {
    auto sizes = rows.sizes().vec();
    sizes[0] = 8;
    return rows.unflatten(0, {2, 2}).repeat_interleave(2, 0).reshape(sizes);
  };
  mha->W_query->weight.copy_(gqa->W_query->weight);
  mha->W_query->bias.copy_(gqa->W_query->bias);
  mha->W_key->weight.copy_(repeat(gqa->W_key->weight));
  mha->W_key->bias.copy_(repeat(gqa->W_key->bias));
  mha->W_value->weight.copy_(repeat(gqa->W_value->weight));
  mha->W_value->bias.copy_(repeat(gqa->W_value->bias));
  mha->out_proj->weight.copy_(gqa->out_proj->weight);
  mha->out_proj->bias.copy_(gqa->out_proj->bias);
  const auto [y, weights] = gqa->forward_with_weights(x);
  const auto [want, want_weights] = mha->forward_with_weights(x);
  CHECK_CLOSE(y, want);
  CHECK_CLOSE(weights, want_weights);
  CHECK_CLOSE(gqa->forward(x[1]), y[1]);
}

TEST_CASE("GroupedQueryAttention with as many groups as heads is MultiHeadAttention",
          "[grouped_query_attention]") {
  for (const bool extras : {false, true}) {
    const auto x = at::randn({2, 5, 6});
    MultiHeadAttention mha(MultiHeadAttentionOptions(6, 8, 5, 0.0, 4).alibi(extras).sinks(extras));
    GroupedQueryAttention gqa(
        GroupedQueryAttentionOptions(6, 8, 5, 0.0, 4, 4).out_bias(true).alibi(extras).sinks(extras));
    if (extras) {
      const at::NoGradGuard no_grad;
      mha->sinks.copy_(at::randn({4}));
    }
    copy_parameters(*gqa, *mha);
    CHECK_CLOSE(gqa->forward(x), mha->forward(x));
  }
}

TEST_CASE("MultiHeadAttention: ALiBi and sinks are those of attention()", "[multi_head_attention]") {
  const auto x = at::randn({2, 5, 6});
  at::manual_seed(5);
  MultiHeadAttention plain(6, 8, 5, 0.0, 4);
  at::manual_seed(5);
  MultiHeadAttention mha(MultiHeadAttentionOptions(6, 8, 5, 0.0, 4).alibi(true).sinks(true));
  // Neither option draws a number.
  CHECK(bit_equal(plain->out_proj->bias, mha->out_proj->bias));
  CHECK(plain->named_parameters().size() == 4 + 1);
  CHECK(mha->sinks.abs().sum().item<double>() == 0.0);
  {
    const at::NoGradGuard no_grad;
    mha->sinks.copy_(at::randn({4}));
  }
  const auto heads = [&](torch::nn::Linear& layer) { return split_heads(layer->forward(x), 4); };
  const auto want =
      attention(heads(mha->W_query), heads(mha->W_key), heads(mha->W_value), {.causal = Causal::BottomRight},
                {.alibi_slopes = alibi_slopes(4), .sinks = mha->sinks, .weights = Weights::Clean});
  const auto [y, weights] = mha->forward_with_weights(x);
  CHECK_CLOSE(weights, want.weights);
  CHECK_CLOSE(y, mha->out_proj->forward(merge_heads(want.output)));
  CHECK(difference(weights, plain->forward_with_weights(x).second) != "");
  y.sum().backward();
  CHECK(mha->sinks.grad().abs().sum().item<double>() > 0.0);
}

TEST_CASE("GroupedQueryAttention names every mistake", "[grouped_query_attention]") {
  const auto make = [](int64_t d_out, int64_t heads, int64_t groups) {
    return [=] { return GroupedQueryAttention(6, d_out, 5, 0.0, heads, groups); };
  };
  CHECK(test::value_error(make(8, 4, 3)) ==
        "GroupedQueryAttention: expected num_kv_heads to divide num_heads = 4, got 3");
  CHECK(test::value_error(make(8, 4, 0)) == "GroupedQueryAttention: expected num_kv_heads > 0, got 0");
  CHECK(test::value_error(make(8, 3, 1)) ==
        "GroupedQueryAttention: expected num_heads to divide d_out = 8, got 3");
  CHECK(test::value_error([] {
          return GroupedQueryAttention(small().sinks(true).attention({.softmax_plus_one = true}));
        }) == "GroupedQueryAttention: expected sinks or attention().softmax_plus_one, got both");
  CHECK(test::value_error([] {
          return MultiHeadAttention(
              MultiHeadAttentionOptions(6, 8, 5, 0.0, 4).sinks(true).attention({.softmax_plus_one = true}));
        }) == "MultiHeadAttention: expected sinks or attention().softmax_plus_one, got both");
  GroupedQueryAttention gqa(small());
  CHECK(test::value_error([&] {
          return gqa->forward(at::randn({2, 6, 6}));
        }) == "GroupedQueryAttention: expected at most context_length = 5 tokens, got 6");
  CHECK(test::value_error([&] {
          return gqa->forward(at::randn({2, 5, 7}));
        }) == "GroupedQueryAttention: expected x of shape (B, T, 6) or (T, 6), got (2, 5, 7)");
}
