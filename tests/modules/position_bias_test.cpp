// Tests of the option `position_bias` of the attention layers and of the blocks.

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/core/options.h>
#include <attentive/files/state_dict.h>
#include <attentive/functional/attention.h>
#include <attentive/modules/multi_head_attention.h>
#include <attentive/modules/position_bias.h>
#include <attentive/modules/transformer_blocks.h>

#include "modules/bias_cases.h"
#include "support/compare.h"
#include "support/errors.h"
#include "support/module_suite.h"

using namespace attentive;
using namespace attentive::test;

TEST_CASE("RelativePositionBias equals transformers' T5 in value and gradient",
          "[relative_position_bias][bias_cases]") {
  for (const auto& c : bias_cases("t5_bias", 16)) {
    RelativePositionBias bias(RelativePositionBiasOptions(c.integer("num_heads"))
                                  .num_buckets(c.integer("num_buckets"))
                                  .max_distance(c.integer("max_distance"))
                                  .bidirectional(c.flag("bidirectional")));
    check_bias_case(
        c, *bias, [&](const CaseTensors&) { return bias->forward(c.integer("queries"), c.integer("keys")); });
    CHECK(bit_equal(bias->forward(c.integer("queries"), c.integer("keys")), c.file.expected_output));
  }
}

TEST_CASE("RelativePositionBias is a torch::nn citizen", "[relative_position_bias]") {
  ModuleSuite<RelativePositionBias> suite;
  suite.make = [] {
    return RelativePositionBias(RelativePositionBiasOptions(2).num_buckets(6).max_distance(5));
  };
  suite.input_shape = {2, 4, 7};
  suite.keys = {"weight"};
  suite.call = [](RelativePositionBias& bias, const at::Tensor& x) {
    return x + bias->forward(x.size(-2), x.size(-1));
  };
  suite.sequential = false;
  suite.has_dropout = false;
  suite.meta = false;  // LibTorch selects rows of no meta tensor
  suite.run();
}

TEST_CASE("Near distances have a bucket each, far ones share, and each direction has its own",
          "[relative_position_bias]") {
  // torch.arange(...) through T5Attention._relative_position_bucket of transformers 5.23.0
  const auto differences =
      at::tensor({-1000, -128, -127, -91, -64, -32, -16, -8, -7, -1, 0, 1, 7, 8, 16, 127, 128}, at::kLong);
  const RelativePositionBias both(8), before(RelativePositionBiasOptions(8).bidirectional(false));
  CHECK(bit_equal(both->buckets(differences),
                  at::tensor({15, 15, 15, 15, 14, 12, 10, 8, 7, 1, 0, 17, 23, 24, 26, 31, 31}, at::kLong)));
  CHECK(bit_equal(before->buckets(differences),
                  at::tensor({31, 31, 31, 29, 26, 21, 16, 8, 7, 1, 0, 0, 0, 0, 0, 0, 0}, at::kLong)));
  // At these distances, transformers' float32 rounds up to the next bucket; float64 does not.
  const RelativePositionBias rounded(
      RelativePositionBiasOptions(8).num_buckets(10).max_distance(160).bidirectional(false));
  CHECK(
      bit_equal(rounded->buckets(at::tensor({-10, -20, -80}, at::kLong)), at::tensor({6, 7, 9}, at::kLong)));
}

TEST_CASE("The last query has the position of the last key", "[relative_position_bias]") {
  for (const bool bidirectional : {true, false}) {
    RelativePositionBias bias(
        RelativePositionBiasOptions(3).num_buckets(9).max_distance(6).bidirectional(bidirectional));
    const auto whole = bias->forward(12, 12);
    CHECK(whole.sizes() == at::IntArrayRef({3, 12, 12}));
    CHECK(whole.is_contiguous());
    CHECK(whole.requires_grad());
    // The rows of the last queries are those of a step with a cache.
    CHECK(bit_equal(bias->forward(4, 12), whole.narrow(1, 8, 4)));
    CHECK(bit_equal(bias->forward(1, 12), whole.narrow(1, 11, 1)));
    // The columns of the last keys are those of a cache that has dropped the others.
    CHECK(bit_equal(bias->forward(4, 7), whole.narrow(1, 8, 4).narrow(2, 5, 7)));
    // More queries than keys: the first ones stand before the first key.
    CHECK(bit_equal(bias->forward(12, 5), whole.narrow(2, 7, 5)));
    for (int64_t i = 0; i < 12; ++i) {
      for (int64_t j = 0; j < 12; ++j) {
        const auto row = bias->buckets(at::tensor({j - i}, at::kLong)).item<int64_t>();
        CHECK(bit_equal(whole.select(1, i).select(1, j), bias->weight[row]));
      }
    }
  }
  RelativePositionBias bias(3);
  CHECK(bias->forward(0, 5).sizes() == at::IntArrayRef({3, 0, 5}));
  CHECK(bias->forward(5, 0).sizes() == at::IntArrayRef({3, 5, 0}));
  CHECK(bias->forward(0, 0).sizes() == at::IntArrayRef({3, 0, 0}));
}

TEST_CASE("RelativePositionBias sums the gradients of half types in float32", "[relative_position_bias]") {
  RelativePositionBias bias(RelativePositionBiasOptions(2).bidirectional(false));
  bias->forward(3, 1000).sum().backward();
  const auto exact = bias->weight.grad();
  CHECK(exact[31][0].item<double>() > 2500);
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    RelativePositionBias half(RelativePositionBiasOptions(2).bidirectional(false));
    half->to(type);
    half->forward(3, 1000).sum().backward();
    CHECK(bit_equal(half->weight.grad(), exact.to(type)));
  }
}

TEST_CASE("RelativePositionBias names what is wrong", "[relative_position_bias][errors]") {
  const auto make = [](const RelativePositionBiasOptions& options) {
    return value_error([&] { RelativePositionBias refused(options); });
  };
  CHECK(make(RelativePositionBiasOptions(0)) == "RelativePositionBias: expected num_heads > 0, got 0");
  CHECK(make(RelativePositionBiasOptions(2).num_buckets(0)) ==
        "RelativePositionBias: expected num_buckets > 0, got 0");
  CHECK(make(RelativePositionBiasOptions(2).num_buckets(3)) ==
        "RelativePositionBias: expected num_buckets >= 4 for both directions, got 3");
  CHECK(make(RelativePositionBiasOptions(2).num_buckets(1).bidirectional(false)) ==
        "RelativePositionBias: expected num_buckets >= 2, got 1");
  CHECK(make(RelativePositionBiasOptions(2).max_distance(8)) ==
        "RelativePositionBias: expected max_distance > 8, the number of distances with a bucket each, got 8");
  CHECK(
      make(RelativePositionBiasOptions(2).max_distance(16).bidirectional(false)) ==
      "RelativePositionBias: expected max_distance > 16, the number of distances with a bucket each, got 16");
  CHECK(make(RelativePositionBiasOptions(2).max_distance(9)) == "no error");
  CHECK(make(RelativePositionBiasOptions(2).num_buckets(4).max_distance(2)) == "no error");
  RelativePositionBias bias(2);
  CHECK(value_error([&] { bias->forward(-1, 3); }) == "RelativePositionBias: expected queries >= 0, got -1");
  CHECK(value_error([&] { bias->forward(3, -1); }) == "RelativePositionBias: expected keys >= 0, got -1");
  CHECK(value_error([&] { bias->forward(3, int64_t{1} << 62); }) ==
        "RelativePositionBias: expected keys of at most 2^48, got 4611686018427387904");
  CHECK(value_error([&] { bias->buckets({}); }) ==
        "RelativePositionBias: expected differences to be a tensor, got an undefined one");
  CHECK(type_error([&] { bias->buckets(at::arange(3, at::kInt)); }) ==
        "RelativePositionBias: expected differences as int64, got Int");
}

namespace {

RelativePositionBias2d drawn(int64_t height, int64_t width, int64_t num_heads) {
  RelativePositionBias2d bias(height, width, num_heads);
  const at::NoGradGuard no_grad;
  bias->relative_position_bias_table.normal_();
  return bias;
}

}  // namespace

TEST_CASE("RelativePositionBias2d equals transformers' Swin in value and gradient",
          "[relative_position_bias_2d][bias_cases]") {
  for (const auto& c : bias_cases("swin_bias", 8)) {
    RelativePositionBias2d bias(c.integer("height"), c.integer("width"), c.integer("num_heads"));
    check_bias_case(c, *bias, [&](const CaseTensors&) { return bias->forward(); });
    CHECK(bit_equal(bias->forward(), c.file.expected_output));
  }
}

TEST_CASE("RelativePositionBias2d is a torch::nn citizen", "[relative_position_bias_2d]") {
  ModuleSuite<RelativePositionBias2d> suite;
  suite.make = [] { return drawn(2, 3, 2); };
  suite.input_shape = {2, 6, 6};
  suite.keys = {"relative_position_bias_table"};
  suite.call = [](RelativePositionBias2d& bias, const at::Tensor& x) { return x + bias->forward(); };
  suite.sequential = false;
  suite.has_dropout = false;
  suite.meta = false;  // LibTorch reverses no meta tensor
  suite.run();
}

TEST_CASE("A pair reads the row of its two differences, and the first table is zero",
          "[relative_position_bias_2d]") {
  RelativePositionBias2d fresh(3, 2, 4);
  CHECK(fresh->relative_position_bias_table.sizes() == at::IntArrayRef({15, 4}));
  CHECK(fresh->relative_position_bias_table.eq(0).all().item<bool>());

  constexpr int64_t height = 3, width = 2, tokens = height * width;
  auto bias = drawn(height, width, 4);
  const auto all = bias->forward();
  CHECK(all.sizes() == at::IntArrayRef({4, tokens, tokens}));
  CHECK(all.is_contiguous());
  for (int64_t i = 0; i < tokens; ++i) {
    for (int64_t j = 0; j < tokens; ++j) {
      const auto down = i / width - j / width, across = i % width - j % width;  // query - key
      const auto row = (down + height - 1) * (2 * width - 1) + across + width - 1;
      CHECK(bit_equal(all.select(1, i).select(1, j), bias->relative_position_bias_table[row]));
    }
  }
}

TEST_CASE("RelativePositionBias2d sums the gradients of half types in float32",
          "[relative_position_bias_2d]") {
  RelativePositionBias2d exact(20, 21, 1), half(20, 21, 1);
  half->to(at::kBFloat16);
  exact->forward().sum().backward();
  half->forward().sum().backward();
  CHECK(exact->relative_position_bias_table.grad().max().item<float>() == 420);
  CHECK(bit_equal(half->relative_position_bias_table.grad(),
                  exact->relative_position_bias_table.grad().to(at::kBFloat16)));
}

TEST_CASE("RelativePositionBias2d names what is wrong", "[relative_position_bias_2d][errors]") {
  const auto make = [](const RelativePositionBias2dOptions& options) {
    return value_error([&] { RelativePositionBias2d refused(options); });
  };
  CHECK(make({0, 3, 2}) == "RelativePositionBias2d: expected height in [1, 1048576], got 0");
  CHECK(make({3, -1, 2}) == "RelativePositionBias2d: expected width in [1, 1048576], got -1");
  CHECK(make({3, 3, 0}) == "RelativePositionBias2d: expected num_heads > 0, got 0");
}

TEST_CASE("DistanceBias equals transformers' ALiBi with learned slopes in value and gradient",
          "[distance_bias][bias_cases]") {
  const AttentionOptions causal{.causal = Causal::BottomRight};
  for (const auto& c : bias_cases("distance", 6)) {
    const auto heads = c.integer("num_heads");
    DistanceBias bias(heads);
    if (c.flag("standard")) CHECK(bit_equal(bias->slopes.detach(), c.file.state.at("slopes")));
    check_bias_case(c, *bias, [&](const CaseTensors& in) {
      return attention(in.at("q"), in.at("k"), in.at("v"), causal, {.alibi_slopes = bias->slopes}).output;
    });
    check_bias_case(c, *bias, [&](const CaseTensors& in) {
      const auto tokens = in.at("q").size(2);
      return attention(in.at("q"), in.at("k"), in.at("v"), causal,
                       Mask::per_head(Mask::bias(bias->forward(tokens, tokens))));
    });
  }
}

TEST_CASE("DistanceBias is a torch::nn citizen", "[distance_bias]") {
  ModuleSuite<DistanceBias> suite;
  suite.make = [] { return DistanceBias(3); };
  suite.input_shape = {3, 4, 6};
  suite.keys = {"slopes"};
  suite.call = [](DistanceBias& bias, const at::Tensor& x) {
    return x + bias->forward(x.size(-2), x.size(-1));
  };
  suite.sequential = false;
  suite.has_dropout = false;
  suite.meta = false;  // LibTorch has no absolute values of meta tensors
  suite.run();
}

TEST_CASE("DistanceBias begins with the standard slopes and counts from the last key", "[distance_bias]") {
  DistanceBias bias(6);
  CHECK(bit_equal(bias->slopes.detach(), alibi_slopes(6)));
  CHECK(bias->slopes.requires_grad());
  {
    const at::NoGradGuard no_grad;
    bias->slopes.normal_();
  }
  const auto values = bias->forward(3, 5);
  CHECK(values.sizes() == at::IntArrayRef({6, 3, 5}));
  for (int64_t i = 0; i < 3; ++i) {
    for (int64_t j = 0; j < 5; ++j)
      CHECK(bit_equal(values.select(1, i).select(1, j),
                      bias->slopes * -static_cast<double>(std::abs(i + 2 - j))));
  }
  CHECK(bit_equal(bias->forward(5, 3), bias->forward(5, 5).narrow(2, 2, 3)));
  CHECK(bias->forward(0, 3).sizes() == at::IntArrayRef({6, 0, 3}));
  CHECK(bias->forward(3, 0).sizes() == at::IntArrayRef({6, 3, 0}));
}

TEST_CASE("DistanceBias keeps far distances apart in half types", "[distance_bias]") {
  constexpr int64_t kHeads = 12;  // not all slopes are powers of two
  DistanceBias bias(kHeads);
  bias->to(at::kBFloat16);
  const auto slopes = alibi_slopes(kHeads).to(at::kBFloat16).to(at::kFloat);
  const auto exact = slopes.unsqueeze(1) * -at::arange(1001, -1, -1).to(at::kFloat);
  CHECK(bit_equal(bias->forward(1, 1002).view({kHeads, 1002}), exact.to(at::kBFloat16)));
}

TEST_CASE("DistanceBias names what is wrong", "[distance_bias][errors]") {
  CHECK(value_error([] { DistanceBias refused(0); }) == "DistanceBias: expected num_heads > 0, got 0");
  DistanceBias bias(2);
  CHECK(value_error([&] { bias->forward(-1, 3); }) == "DistanceBias: expected queries >= 0, got -1");
  CHECK(value_error([&] { bias->forward(3, -1); }) == "DistanceBias: expected keys >= 0, got -1");
}

namespace {

constexpr int64_t kHeads = 4, kBiasTokens = 6;

struct Choice {
  const char* name;
  PositionBiasOptions options;
};

std::vector<Choice> choices() {
  return {{"RelativePositionBias", RelativePositionBiasOptions(kHeads).num_buckets(8).max_distance(6)},
          {"RelativePositionBias2d", RelativePositionBias2dOptions(2, 3, kHeads)},
          {"DistanceBias", DistanceBiasOptions(kHeads)}};
}

// Replaces the first values, which are zero in RelativePositionBias2d.
void draw(torch::nn::Module& bias) {
  const at::NoGradGuard no_grad;
  for (auto& parameter : bias.parameters()) parameter.normal_();
}

// Returns the bias that a layer's child gives kTokens queries and keys.
at::Tensor values_of(torch::nn::Module& bias) {
  if (auto* distance = bias.as<DistanceBias>()) return distance->forward(kBiasTokens, kBiasTokens);
  if (auto* plane = bias.as<RelativePositionBias2d>()) return plane->forward();
  return bias.as<RelativePositionBias>()->forward(kBiasTokens, kBiasTokens);
}

MultiHeadAttentionOptions multi_head(const PositionBiasOptions& bias) {
  return MultiHeadAttentionOptions(8, 8, 0, 0.0, kHeads, /*qkv_bias=*/true).position_bias(bias);
}

TransformerAttentionOptions transformer(const PositionBiasOptions& bias) {
  return TransformerAttentionOptions(8, kHeads).num_kv_heads(2).position_bias(bias);
}

// Checks that a layer with a bias equals the one without it, built from the same seed, whose mask is the
// bias: in its parameters, its output and its gradients.
template <class Holder, class Options>
void check_layer(const Options& with, const Options& without) {
  at::manual_seed(3);
  Holder layer(with);
  at::manual_seed(3);
  Holder plain(without);
  REQUIRE(layer->position_bias);
  CHECK_FALSE(plain->position_bias);
  auto parameters = layer->named_parameters();
  for (const auto& item : plain->named_parameters()) CHECK(bit_equal(item.value(), parameters[item.key()]));
  CHECK(parameters.size() == plain->named_parameters().size() + 1);
  CHECK(parameters.keys().back().rfind("position_bias.", 0) == 0);

  draw(*layer->position_bias);
  const auto x = at::randn({3, kBiasTokens, 8}).requires_grad_(true);
  const auto padding = Mask::key_lengths(at::tensor({6, 4, 1}));
  const auto y = layer->forward(x, padding);
  y.square().sum().backward();
  const auto table_gradient = layer->position_bias->parameters()[0].grad().clone();
  const auto input_gradient = x.grad().clone();
  x.mutable_grad().reset();
  layer->position_bias->zero_grad();
  const auto mask = Mask::per_head(Mask::bias(values_of(*layer->position_bias)));
  const auto want = plain->forward(x, padding & mask);
  want.square().sum().backward();
  CHECK_CLOSE(y, want);
  CHECK_FALSE(difference(y, plain->forward(x, padding)).empty());
  const auto tolerance = tolerance_of(at::kFloat, /*gradient=*/true);
  CHECK(difference(input_gradient, x.grad(), tolerance) == "");
  CHECK(difference(table_gradient, layer->position_bias->parameters()[0].grad(), tolerance) == "");
}

class NoContext final : public AttentionContext {
 public:
  int64_t size() const override { return 2; }
  std::vector<Run> runs(int64_t tokens) const override { return {{0, tokens}}; }
  AttentionResult attention(const at::Tensor& q, const at::Tensor&, const at::Tensor&,
                            const AttentionOptions&, const AttentionExtras&) override {
    return {q, {}, {}};
  }
};

}  // namespace

TEST_CASE("A layer with a position bias equals the layer with that bias as its mask", "[position_bias]") {
  for (const auto& [name, options] : choices()) {
    for (const auto causal : {Causal::BottomRight, Causal::None}) {
      INFO(name << ", causal " << to_string(causal));
      const AttentionOptions attention{.causal = causal};
      check_layer<MultiHeadAttention>(multi_head(options).attention(attention),
                                      multi_head({}).attention(attention));
      check_layer<TransformerAttention>(transformer(options).attention(attention),
                                        transformer({}).attention(attention));
    }
  }
}

TEST_CASE("Layers with a position bias are torch::nn citizens", "[position_bias]") {
  const std::vector<std::string> names{"weight", "relative_position_bias_table", "slopes"};
  const std::vector<std::string> linear{"W_query.weight", "W_key.weight", "W_value.weight", "out_proj.weight",
                                        "out_proj.bias"};
  const auto all = choices();
  for (size_t n = 0; n < all.size(); ++n) {
    INFO(all[n].name);
    ModuleSuite<MultiHeadAttention> heads;
    heads.make = [&] {
      MultiHeadAttention layer(
          MultiHeadAttentionOptions(8, 8, 0, 0.25, kHeads).position_bias(all[n].options));
      draw(*layer->position_bias);
      return layer;
    };
    heads.input_shape = {2, kBiasTokens, 8};
    heads.keys = linear;
    heads.keys.push_back("position_bias." + names[n]);
    heads.unbatched = true;
    heads.meta = false;  // the child's parameters stay on the CPU
    heads.run();

    ModuleSuite<TransformerAttention> grouped;
    grouped.make = [&] {
      TransformerAttention layer(transformer(all[n].options).dropout(0.25));
      draw(*layer->position_bias);
      return layer;
    };
    grouped.input_shape = {2, kBiasTokens, 8};
    grouped.keys = heads.keys;
    grouped.meta = false;
    grouped.run();
  }
}

TEST_CASE("Blocks pass a position bias to their self-attention", "[position_bias]") {
  const auto bias = RelativePositionBiasOptions(kHeads).num_buckets(8).max_distance(6);
  const TransformerBlockOptions options(transformer(bias));
  const auto memory = at::randn({2, 3, 8});
  for (auto block : {TransformerBlock(options), encoder_block(options)}) {
    CHECK(block->named_parameters().contains("att.position_bias.weight"));
    const auto x = at::randn({2, kBiasTokens, 8});
    const auto h = x + block->att->forward(block->norm1->forward(x));
    CHECK_CLOSE(block->forward(x), h + block->ff->forward(block->norm2->forward(h)));
    const auto before = block->forward(x);
    draw(*block->att->position_bias);
    CHECK_FALSE(difference(block->forward(x), before).empty());
  }
  ModuleSuite<DecoderBlock> suite;
  suite.make = [&] { return DecoderBlock(options); };
  suite.input_shape = {2, kBiasTokens, 8};
  suite.call = [=](DecoderBlock& block, const at::Tensor& x) {
    return block->forward(x, memory.to(x.options().requires_grad(false)));
  };
  suite.clone_keeps_random_state();
  suite.save_and_load();
  suite.dtypes();
  suite.gradient_matches_differences();
  const DecoderBlock block(options);
  CHECK(block->named_parameters().contains("att.position_bias.weight"));
  CHECK_FALSE(block->cross->named_children().contains("position_bias"));
}

TEST_CASE("Decoding with a position bias equals the whole sequence", "[position_bias]") {
  const at::NoGradGuard no_grad;
  const auto x = at::randn({2, 9, 8});
  const KVCacheOptions sizes{.batch = 2, .num_kv_heads = 2, .head_dim = 2};
  for (const auto& [name, options] : choices()) {
    if (std::holds_alternative<RelativePositionBias2dOptions>(options)) continue;
    INFO(name);
    for (const int64_t left : {-1, 3}) {
      INFO("window.left " << left);
      TransformerAttention layer(
          transformer(options).attention({.causal = Causal::BottomRight, .window = {left, -1}}));
      draw(*layer->position_bias);
      const auto whole = layer->forward(x);
      for (const auto& chunks :
           {std::vector<int64_t>{1, 1, 1, 1, 1, 1, 1, 1, 1}, {4, 3, 2}, {2, 1, 4, 1, 1}}) {
        DenseKVCache dense(sizes, 9);
        RingKVCache ring(sizes, /*window=*/left + 1 + (left < 0 ? 9 : 0), /*chunk=*/4);
        int64_t first = 0;
        for (const auto chunk : chunks) {
          const auto want = whole.narrow(1, first, chunk), part = x.narrow(1, first, chunk);
          CHECK_CLOSE(layer->forward_cached(part, dense, 0), want);
          if (left >= 0) CHECK_CLOSE(layer->forward_cached(part, ring, 0), want);
          first += chunk;
        }
      }
    }
  }
}

TEST_CASE("One bias serves many layers as a mask, and sums their gradients", "[position_bias]") {
  RelativePositionBias bias(kHeads);
  TransformerAttention first(transformer({})), second(transformer({}));
  const auto x = at::randn({1, kBiasTokens, 8});
  const auto shared = Mask::per_head(Mask::bias(bias->forward(kBiasTokens, kBiasTokens)));
  second->forward(first->forward(x, shared), shared).square().sum().backward();
  const auto together = bias->weight.grad().clone();
  bias->zero_grad();
  const auto mask = [&] { return Mask::per_head(Mask::bias(bias->forward(kBiasTokens, kBiasTokens))); };
  second->forward(first->forward(x, mask()), mask()).square().sum().backward();
  CHECK(difference(together, bias->weight.grad(), tolerance_of(at::kFloat, /*gradient=*/true)) == "");
}

TEST_CASE("A layer's bias is in its state dict and its clone", "[position_bias]") {
  for (const auto& [name, options] : choices()) {
    INFO(name);
    TransformerAttention layer(transformer(options));
    draw(*layer->position_bias);
    TransformerAttention other(transformer(options));
    load_state_dict(*other, state_dict(*layer));
    const auto copy = std::dynamic_pointer_cast<TransformerAttentionImpl>(layer->clone());
    const auto x = at::randn({2, kBiasTokens, 8});
    const auto y = layer->forward(x);
    CHECK(bit_equal(other->forward(x), y));
    CHECK(bit_equal(copy->forward(x), y));
    // The clone has a child of its own.
    draw(*layer->position_bias);
    CHECK(bit_equal(copy->forward(x), y));
    CHECK_FALSE(bit_equal(layer->forward(x), y));
    CHECK(copy->position_bias == copy->named_children()["position_bias"]);
  }
}

TEST_CASE("A position bias works under autocast and beside ALiBi's fixed slopes", "[position_bias]") {
  const auto x = at::randn({2, kBiasTokens, 8});
  MultiHeadAttention layer(multi_head(choices()[0].options).alibi(true));
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const auto y = layer->forward(x);
  y.sum().backward();
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
  CHECK(y.scalar_type() == at::kBFloat16);
  CHECK_WITHIN(y, layer->forward(x), {4e-2, 2e-6});
  CHECK(layer->position_bias->parameters()[0].grad().scalar_type() == at::kFloat);
}

TEST_CASE("Position biases that do not fit are refused by name", "[position_bias][errors]") {
  const RelativePositionBiasOptions line(2);
  const RelativePositionBias2dOptions plane(2, 3, kHeads);
  const DistanceBiasOptions slopes(kHeads);
  CHECK(
      value_error([&] { MultiHeadAttention refused(multi_head(line)); }) ==
      "MultiHeadAttention: expected a position_bias of 4 heads like the layer, got a RelativePositionBias of "
      "2");
  CHECK(value_error([&] { TransformerAttention refused(transformer(DistanceBiasOptions(2))); }) ==
        "TransformerAttention: expected a position_bias of 4 heads like the layer, got a DistanceBias of 2");
  CHECK(value_error(
            [&] { TransformerAttention refused(transformer(RelativePositionBias2dOptions(2, 3, 1))); }) ==
        "TransformerAttention: expected a position_bias of 4 heads like the layer, got a "
        "RelativePositionBias2d of 1");
  CHECK(value_error([&] {
          MultiHeadAttention refused(multi_head(RelativePositionBiasOptions(kHeads).max_distance(0)));
        }) ==
        "RelativePositionBias: expected max_distance > 8, the number of distances with a bucket each, got 0");
  CHECK(value_error([&] { MultiHeadAttention refused(multi_head(slopes).alibi(true)); }) ==
        "MultiHeadAttention: expected alibi or a position_bias of learned slopes (DistanceBias), got both");

  const auto five = at::randn({1, 5, 8});
  CHECK(value_error([&] { MultiHeadAttention(multi_head(plane))->forward(five); }) ==
        "MultiHeadAttention: expected the 6 tokens of a window of 2 x 3 (position_bias), got 5");
  CHECK(value_error([&] { TransformerAttention(transformer(plane))->forward(five); }) ==
        "TransformerAttention: expected the 6 tokens of a window of 2 x 3 (position_bias), got 5");
  DenseKVCache cache({.num_kv_heads = 2, .head_dim = 2}, 9);
  CHECK(value_error([&] {
          const at::NoGradGuard no_grad;
          TransformerAttention(transformer(plane))->forward_cached(at::randn({1, 6, 8}), cache, 0);
        }) ==
        "TransformerAttention: expected no cache with a RelativePositionBias2d, whose window is one call");
  CHECK(cache.position() == 0);

  for (const auto& [name, options] : choices()) {
    TransformerAttention split(transformer(options));
    split->context = std::make_shared<NoContext>();
    CHECK(value_error([&] { split->forward(five); }) ==
          "TransformerAttention: expected no position_bias for a sequence split over processes (context is "
          "set)");
  }
}
