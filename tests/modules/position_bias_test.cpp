// Tests of the option `position_bias` of the attention layers and of the blocks.

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/core/options.h>
#include <attentive/files/state_dict.h>
#include <attentive/modules/multi_head_attention.h>
#include <attentive/modules/position_bias.h>
#include <attentive/modules/transformer_blocks.h>

#include "support/compare.h"
#include "support/errors.h"
#include "support/module_suite.h"

using namespace attentive;
using namespace attentive::test;

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
