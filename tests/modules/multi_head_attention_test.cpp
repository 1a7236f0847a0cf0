#include <cmath>

#include <ATen/ops/eye.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/core/options.h>
#include <attentive/functional/attention.h>
#include <attentive/functional/heads_and_windows.h>
#include <attentive/functional/linear_attention.h>
#include <attentive/modules/multi_head_attention.h>

#include "modules/golden_check.h"
#include "support/compare.h"
#include "support/errors.h"
#include "support/module_suite.h"

using namespace attentive;
using namespace attentive::test;
using attentive::test::sentence;
using attentive::test::table;

namespace {

GoldenModule notebook_multi_head_attention(double dropout) {
  return {.make = [=] { return MultiHeadAttention(3, 2, 6, dropout, 2).ptr(); },
          .call = bind_one_input<MultiHeadAttention>()};
}

}  // namespace

TEST_CASE("MultiHeadAttention prints the notebook's table", "[multi_head_attention]") {
  at::manual_seed(123);
  const auto y = MultiHeadAttention(3, 2, 6, 0.0, 2)->forward(batch());
  const auto printed = table({{.3190f, .4858f},
                              {.2943f, .3897f},
                              {.2856f, .3593f},
                              {.2693f, .3873f},
                              {.2639f, .3928f},
                              {.2575f, .4028f}});
  CHECK(as_printed(y, at::stack({printed, printed})));
}

TEST_CASE("MultiHeadAttention equals PyTorch", "[multi_head_attention][short]") {
  check_golden("MultiHeadAttention", notebook_multi_head_attention(0.0), at::kCPU);
  check_training("MultiHeadAttention.train", notebook_multi_head_attention(0.5));
}

TEST_CASE("MultiHeadAttention equals PyTorch on CUDA", "[multi_head_attention][cuda]") {
  check_golden("MultiHeadAttention", notebook_multi_head_attention(0.0), cuda_or_skip());
}

TEST_CASE("MultiHeadAttention is a torch::nn citizen", "[multi_head_attention]") {
  ModuleSuite<MultiHeadAttention> suite;
  suite.make = [] {
    return MultiHeadAttention(MultiHeadAttentionOptions(6, 8, 5, 0.25, 2, /*qkv_bias=*/true));
  };
  suite.input_shape = {2, 5, 6};
  suite.keys = {"W_query.weight", "W_query.bias", "W_key.weight",    "W_key.bias",
                "W_value.weight", "W_value.bias", "out_proj.weight", "out_proj.bias"};
  suite.unbatched = true;
  suite.run();
}

TEST_CASE("MultiHeadAttention takes fewer tokens than its context", "[multi_head_attention]") {
  MultiHeadAttention module(3, 4, /*context_length=*/6, 0.0, 2),
      unlimited(3, 4, /*context_length=*/0, 0.0, 2);
  const auto x = at::randn({2, 6, 3});
  // The module is causal, so later tokens do not change earlier outputs.
  CHECK_CLOSE(module->forward(x.slice(1, 0, 4)), module->forward(x).slice(1, 0, 4));
  CHECK(unlimited->forward(at::randn({2, 40, 3})).size(1) == 40);
}

TEST_CASE("MultiHeadAttention obeys its mask, batched or not", "[multi_head_attention]") {
  MultiHeadAttention module(3, 4, 6, 0.0, 2);
  const auto x = at::randn({2, 6, 3});
  const auto mask = Mask::key_lengths(at::tensor({6, 3}, at::kLong));
  const auto [y, weights] = module->forward_with_weights(x, mask);
  CHECK(weights[1].slice(2, 3).eq(0).all().item<bool>());
  CHECK(weights.sum(-1).sub(1).abs().max().item<float>() < 1e-6f);
  const auto [one, one_weights] =
      module->forward_with_weights(x[1], Mask::key_lengths(at::tensor({3}, at::kLong)));
  CHECK_CLOSE(one, y[1]);
  CHECK_CLOSE(one_weights, weights[1]);
}

TEST_CASE("MultiHeadAttention names what is wrong", "[multi_head_attention][errors]") {
  MultiHeadAttention module(6, 8, 5, 0.0, 2);
  const auto value = [&](const at::Tensor& x) { return value_error([&] { module->forward(x); }); };
  CHECK(value({}) == "MultiHeadAttention: expected x to be a tensor, got an undefined one");
  CHECK(value(at::randn({6})) == "MultiHeadAttention: expected x of shape (B, T, 6) or (T, 6), got (6,)");
  CHECK(value(at::randn({2, 5, 4})) ==
        "MultiHeadAttention: expected x of shape (B, T, 6) or (T, 6), got (2, 5, 4)");
  CHECK(value(at::randn({1, 2, 5, 6})) ==
        "MultiHeadAttention: expected x of shape (B, T, 6) or (T, 6), got (1, 2, 5, 6)");
  CHECK(value(at::randn({2, 6, 6})) ==
        "MultiHeadAttention: expected at most context_length = 5 tokens, got 6");
  CHECK(value(at::randn({2, 5, 6}, at::kMeta)) ==
        "MultiHeadAttention: expected x on cpu like the parameters, got it on meta");
  CHECK(type_error([&] {
          module->forward(at::randn({2, 5, 6}, at::kDouble));
        }) == "MultiHeadAttention: expected x of dtype Float like the parameters, got Double");

  const auto make = [](MultiHeadAttentionOptions options) {
    return value_error([&] { MultiHeadAttention refused(options); });
  };
  CHECK(make({0, 8, 5, 0.0, 2}) == "MultiHeadAttention: expected d_in > 0, got 0");
  CHECK(make({6, -8, 5, 0.0, 2}) == "MultiHeadAttention: expected d_out > 0, got -8");
  CHECK(make({6, 8, 5, 0.0, 3}) == "MultiHeadAttention: expected num_heads to divide d_out = 8, got 3");
  CHECK(make({6, 8, 5, 0.0, 0}) == "MultiHeadAttention: expected num_heads > 0, got 0");
  CHECK(make({6, 8, 5, 1.5, 2}) == "MultiHeadAttention: expected dropout in [0, 1], got 1.5");
  CHECK(make({6, 8, -1, 0.0, 2}) == "MultiHeadAttention: expected context_length >= 0 (0: no limit), got -1");
  CHECK(make(MultiHeadAttentionOptions(6, 8, 5, 0.0, 2).attention({.dropout_p = 0.5})) ==
        "MultiHeadAttention: expected attention().dropout_p to stay 0 (set dropout; training mode decides), "
        "got "
        "0.5");
}

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

namespace {

GoldenModule two_sequences() {
  return {.inputs = {"x", "memory"},
          .draws_inputs = true,
          .make = [] { return CrossAttention(6, 5, 8, 0.0, 2, /*qkv_bias=*/true).ptr(); },
          .call =
              [](torch::nn::Module& module, const Inputs& inputs, const Mask& mask, Weights which) {
                return dynamic_cast<CrossAttentionImpl&>(module).forward_with_weights(inputs[0], inputs[1],
                                                                                      mask, which);
              }};
}

}  // namespace

TEST_CASE("CrossAttention equals PyTorch", "[cross_attention]") {
  check_golden("CrossAttention", two_sequences(), at::kCPU);
  check_golden("CrossAttention.mask", two_sequences(), at::kCPU);
}

TEST_CASE("CrossAttention equals PyTorch on CUDA", "[cross_attention][cuda]") {
  check_golden("CrossAttention.mask", two_sequences(), cuda_or_skip());
}

TEST_CASE("CrossAttention looks from two words at four others", "[cross_attention]") {
  // With identity projections, words 1 and 2 of the sentence are the queries, and words 3 to 6 are keys and
  // values.
  CrossAttention module(3, 3, 3, 0.0, 1);
  {
    const at::NoGradGuard no_grad;
    for (auto& layer : {module->W_query, module->W_key, module->W_value, module->out_proj})
      layer->weight.copy_(at::eye(3));
    module->out_proj->bias.zero_();
  }
  const auto [y, weights] = module->forward_with_weights(sentence().slice(0, 0, 2), sentence().slice(0, 2));
  CHECK(as_printed(y, table({{.4059f, .6409f, .4254f}, {.4009f, .6546f, .4379f}})));
  CHECK(weights.sizes() == at::IntArrayRef({1, 2, 4}));
}

TEST_CASE("CrossAttention takes queries from x, keys and values from memory", "[cross_attention]") {
  CrossAttention module(6, 5, 8, 0.0, 2);
  const auto x = at::randn({2, 4, 6}), memory = at::randn({2, 7, 5});
  const auto y = module->forward(x, memory);
  CHECK(y.sizes() == at::IntArrayRef({2, 4, 8}));
  // A query's row depends on no other query, and on every token of memory.
  CHECK_CLOSE(module->forward(x.slice(1, 2, 3), memory), y.slice(1, 2, 3));
  auto other = memory.clone();
  other.select(1, 6).add_(1.0);
  CHECK((module->forward(x, other) - y).abs().amax(-1).gt(1e-4).all().item<bool>());
  // Hidden tokens of memory have no effect, even if they hold NaN.
  other.slice(1, 3).fill_(NAN);
  const auto lengths = at::tensor({3, 3}, at::kLong);
  CHECK_CLOSE(module->forward(x, other, Mask::key_lengths(lengths)),
              module->forward(x, memory.slice(1, 0, 3)));
}

TEST_CASE("CrossAttention is a torch::nn citizen", "[cross_attention]") {
  ModuleSuite<CrossAttention> suite;
  suite.make = [] { return CrossAttention(6, 6, 8, 0.25, 2, /*qkv_bias=*/true); };
  suite.input_shape = {2, 5, 6};
  suite.keys = {"W_query.weight", "W_query.bias", "W_key.weight",    "W_key.bias",
                "W_value.weight", "W_value.bias", "out_proj.weight", "out_proj.bias"};
  suite.call = [](CrossAttention& m, const at::Tensor& x) { return m->forward(x.slice(-2, 0, 3), x * x); };
  suite.sequential = false;
  suite.unbatched = true;
  suite.run();
}

TEST_CASE("CrossAttention names what is wrong", "[cross_attention][errors]") {
  CrossAttention module(6, 5, 8, 0.0, 2);
  const auto x = at::randn({2, 4, 6}), memory = at::randn({2, 7, 5});
  CHECK(value_error([&] { module->forward(memory, memory); }) ==
        "CrossAttention: expected x of shape (B, T, 6) or (T, 6), got (2, 7, 5)");
  CHECK(value_error([&] { module->forward(x, x); }) ==
        "CrossAttention: expected memory of shape (B, T, 5) or (T, 5), got (2, 4, 6)");
  CHECK(value_error([&] {
          module->forward(x, at::randn({3, 7, 5}));
        }) == "CrossAttention: expected memory of the batch size of x, got memory (3, 7, 5), x (2, 4, 6)");
  CHECK(value_error([&] { module->forward(x, memory[0]); }) ==
        "CrossAttention: expected memory of the batch size of x, got memory (7, 5), x (2, 4, 6)");
  CHECK(type_error([&] { module->forward(x, memory.to(at::kDouble)); }) ==
        "CrossAttention: expected memory of dtype Float like the parameters, got Double");
  const auto make = [](CrossAttentionOptions options) {
    return value_error([&] { CrossAttention bad(options); });
  };
  CHECK(make({0, 5, 8, 0.0, 2}) == "CrossAttention: expected d_in > 0, got 0");
  CHECK(make({6, 0, 8, 0.0, 2}) == "CrossAttention: expected d_kv > 0, got 0");
  CHECK(make({6, 5, 0, 0.0, 2}) == "CrossAttention: expected d_out > 0, got 0");
  CHECK(make({6, 5, 8, 0.0, 5}) == "CrossAttention: expected num_heads to divide d_out = 8, got 5");
  CHECK(make({6, 5, 8, 7.0, 2}) == "CrossAttention: expected dropout in [0, 1], got 7");
}

TEST_CASE("LinearAttention is a torch::nn citizen", "[linear_attention]") {
  test::ModuleSuite<LinearAttention> suite;
  suite.make = [] { return LinearAttention(6, 8, 2, /*qkv_bias=*/true); };
  suite.input_shape = {2, 5, 6};
  suite.keys = {"W_query.weight", "W_query.bias", "W_key.weight",    "W_key.bias",
                "W_value.weight", "W_value.bias", "out_proj.weight", "out_proj.bias"};
  suite.has_dropout = false;
  suite.run();
}

TEST_CASE("LinearAttention projects as MultiHeadAttention does", "[linear_attention]") {
  at::manual_seed(3);
  LinearAttention linear(6, 8, 2);
  at::manual_seed(3);
  MultiHeadAttention softmax(6, 8, 5, 0.0, 2);
  const auto expected = softmax->named_parameters();
  for (const auto& item : linear->named_parameters()) CHECK(bit_equal(item.value(), expected[item.key()]));
  const auto x = at::randn({2, 5, 6});
  // The first token sees only itself, with any function from scores to weights.
  CHECK_CLOSE(linear->forward(x).select(1, 0), softmax->forward(x).select(1, 0));
  CHECK_CLOSE(linear->forward(x[1]), linear->forward(x)[1]);
  // All tokens are compared with the function.
  const auto heads = [&](torch::nn::Linear& layer) { return split_heads(layer->forward(x), 2); };
  const auto context = linear_attention(heads(linear->W_query), heads(linear->W_key), heads(linear->W_value),
                                        linear->options.attention());
  CHECK_CLOSE(linear->forward(x), linear->out_proj->forward(merge_heads(context)));
}

TEST_CASE("LinearAttention: padding leaves the output bias", "[linear_attention]") {
  LinearAttention module(LinearAttentionOptions(4, 4, 2).attention({.causal = Causal::None}));
  const auto x = at::randn({2, 3, 4});
  const auto y = module->forward(x, Mask::key_lengths(at::tensor({2, 0}, at::kLong)));
  CHECK_CLOSE(y[1], module->out_proj->bias.expand({3, 4}));
  CHECK_CLOSE(y[0].slice(0, 0, 2), module->forward(x[0].slice(0, 0, 2)));
}

TEST_CASE("LinearAttention names every mistake", "[linear_attention]") {
  CHECK_THROWS_AS(LinearAttention(4, 6, 4), c10::ValueError);
  CHECK_THROWS_AS(LinearAttention(0, 6, 2), c10::ValueError);
  CHECK_THROWS_AS(LinearAttention(LinearAttentionOptions(4, 6, 2).attention({.chunk_size = -1})),
                  c10::ValueError);
  CHECK_THROWS_AS(LinearAttention(4, 6, 2)->forward(at::randn({2, 3, 5})), c10::ValueError);
}
