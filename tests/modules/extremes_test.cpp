// Tests every module with meaningless sizes and tensors: the error begins with the module's name and is never
// a message from inside a library.

#include "support/extremes.h"

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ops/_nested_tensor_from_tensor_list.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/quantize_per_tensor.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/attentive.h>

#include "modules/golden_check.h"
#include "support/compare.h"

using namespace attentive;
using namespace attentive::test;

namespace {

// The sizes of every constructor, each with small numbers for the other sizes.
std::vector<Probe<int64_t>> sizes() {
  using Grouped = GroupedQueryAttention;
  using Block = TransformerBlockOptions;
  return {{"SelfAttentionV1", [](int64_t n) { SelfAttentionV1(n, 4); }},
          {"SelfAttentionV1", [](int64_t n) { SelfAttentionV1(4, n); }},
          {"MatrixSelfAttention", [](int64_t n) { MatrixSelfAttention(n, 4); }},
          {"MatrixSelfAttention", [](int64_t n) { MatrixSelfAttention(4, n); }},
          {"SelfAttentionV2", [](int64_t n) { SelfAttentionV2(n, 4); }},
          {"SelfAttentionV2", [](int64_t n) { SelfAttentionV2(4, n); }},
          {"CausalAttention", [](int64_t n) { CausalAttention(n, 4, 6, 0.0); }},
          {"CausalAttention", [](int64_t n) { CausalAttention(4, n, 6, 0.0); }},
          {"MultiHeadAttentionWrapper", [](int64_t n) { MultiHeadAttentionWrapper(n, 4, 6, 0.0, 2); }},
          {"MultiHeadAttentionWrapper", [](int64_t n) { MultiHeadAttentionWrapper(4, n, 6, 0.0, 2); }},
          {"MultiHeadAttentionWrapper", [](int64_t n) { MultiHeadAttentionWrapper(4, 4, 6, 0.0, n); }},
          {"MultiHeadAttention", [](int64_t n) { MultiHeadAttention(n, 4, 6, 0.0, 2); }},
          {"MultiHeadAttention", [](int64_t n) { MultiHeadAttention(4, n, 6, 0.0, 2); }},
          {"MultiHeadAttention", [](int64_t n) { MultiHeadAttention(4, 4, 6, 0.0, n); }},
          {"GroupedQueryAttention", [](int64_t n) { Grouped(n, 4, 6, 0.0, 2, 1); }},
          {"GroupedQueryAttention", [](int64_t n) { Grouped(4, n, 6, 0.0, 2, 1); }},
          {"GroupedQueryAttention", [](int64_t n) { Grouped(4, 4, 6, 0.0, n, 1); }},
          {"GroupedQueryAttention", [](int64_t n) { Grouped(4, 4, 6, 0.0, 2, n); }},
          {"MultiHeadSelfAttention", [](int64_t n) { MultiHeadSelfAttention(n, 2); }},
          {"MultiHeadSelfAttention", [](int64_t n) { MultiHeadSelfAttention(4, n); }},
          {"SharedHeadAttention", [](int64_t n) { SharedHeadAttention(n, 2); }},
          {"SharedHeadAttention", [](int64_t n) { SharedHeadAttention(4, n); }},
          {"FusedSelfAttention", [](int64_t n) { FusedSelfAttention(n, 2); }},
          {"FusedSelfAttention", [](int64_t n) { FusedSelfAttention(4, n); }},
          {"CrossAttention", [](int64_t n) { CrossAttention(n, 4, 4, 0.0, 2); }},
          {"CrossAttention", [](int64_t n) { CrossAttention(4, n, 4, 0.0, 2); }},
          {"CrossAttention", [](int64_t n) { CrossAttention(4, 4, n, 0.0, 2); }},
          {"CrossAttention", [](int64_t n) { CrossAttention(4, 4, 4, 0.0, n); }},
          {"LinearAttention", [](int64_t n) { LinearAttention(n, 4, 2); }},
          {"LinearAttention", [](int64_t n) { LinearAttention(4, n, 2); }},
          {"LinearAttention", [](int64_t n) { LinearAttention(4, 4, n); }},
          {"LayerNorm", [](int64_t n) { LayerNorm{n}; }},
          {"RMSNorm", [](int64_t n) { RMSNorm{n}; }},
          {"FeedForward", [](int64_t n) { FeedForward{n}; }},
          {"FeedForward", [](int64_t n) { FeedForward(FeedForwardOptions(4).hidden_dim(n == 0 ? -1 : n)); }},
          {"LearnedPositions", [](int64_t n) { LearnedPositions(n, 4); }},
          {"LearnedPositions", [](int64_t n) { LearnedPositions(4, n); }},
          {"DistanceBias", [](int64_t n) { DistanceBias{n}; }},
          {"RelativePositionBias", [](int64_t n) { RelativePositionBias{n}; }},
          {"RelativePositionBias",
           [](int64_t n) { RelativePositionBias(RelativePositionBiasOptions(2).num_buckets(n)); }},
          {"RelativePositionBias2d", [](int64_t n) { RelativePositionBias2d(n, 2, 2); }},
          {"RelativePositionBias2d", [](int64_t n) { RelativePositionBias2d(2, n, 2); }},
          {"RelativePositionBias2d", [](int64_t n) { RelativePositionBias2d(2, 2, n); }},
          {"TransformerAttention", [](int64_t n) { TransformerAttention(n, 2); }},
          {"TransformerAttention", [](int64_t n) { TransformerAttention(4, n); }},
          {"TransformerBlock|FeedForward",
           [](int64_t n) { TransformerBlock(Block(4, 2).hidden_dim(n == 0 ? -1 : n)); }},
          {"DecoderBlock|CrossAttention",
           [](int64_t n) { DecoderBlock(Block(4, 2).memory_dim(n == 0 ? -1 : n)); }},
          {"compat::LayerNorm", [](int64_t n) { compat::LayerNorm{n}; }},
          {"compat::MultiheadAttention", [](int64_t n) { compat::MultiheadAttention(n, 1); }},
          {"compat::MultiheadAttention", [](int64_t n) { compat::MultiheadAttention(4, n); }},
          {"compat::TransformerEncoderLayer", [](int64_t n) { compat::TransformerEncoderLayer(n, 1); }},
          {"compat::TransformerDecoderLayer", [](int64_t n) { compat::TransformerDecoderLayer(n, 1); }}};
}

std::vector<Probe<at::Tensor>> forwards() {
  const auto x = at::randn({2, 3, 4});
  return {
      {"SelfAttentionV1", [](auto& t) { SelfAttentionV1(4, 4)->forward(t); }},
      {"MatrixSelfAttention", [](auto& t) { MatrixSelfAttention(4, 4)->forward(t); }},
      {"SelfAttentionV2", [](auto& t) { SelfAttentionV2(4, 4)->forward(t); }},
      {"CausalAttention", [](auto& t) { CausalAttention(4, 4, 6, 0.0)->forward(t); }},
      {"MultiHeadAttentionWrapper", [](auto& t) { MultiHeadAttentionWrapper(4, 4, 6, 0.0, 2)->forward(t); }},
      {"MultiHeadAttention", [](auto& t) { MultiHeadAttention(4, 4, 6, 0.0, 2)->forward(t); }},
      {"GroupedQueryAttention", [](auto& t) { GroupedQueryAttention(4, 4, 6, 0.0, 2, 1)->forward(t); }},
      {"MultiHeadSelfAttention", [](auto& t) { MultiHeadSelfAttention(4, 2)->forward(t); }},
      {"SharedHeadAttention", [](auto& t) { SharedHeadAttention(4, 2)->forward(t, t, t); }},
      {"FusedSelfAttention", [](auto& t) { FusedSelfAttention(4, 2)->forward(t); }},
      {"CrossAttention", [](auto& t) { CrossAttention(4, 4, 4, 0.0, 2)->forward(t, t); }},
      {"CrossAttention", [=](auto& t) { CrossAttention(4, 4, 4, 0.0, 2)->forward(x, t); }},
      {"LinearAttention", [](auto& t) { LinearAttention(4, 4, 2)->forward(t); }},
      {"LayerNorm", [](auto& t) { LayerNorm(4)->forward(t); }},
      {"FeedForward", [](auto& t) { FeedForward(4)->forward(t); }},
      {"TransformerAttention", [](auto& t) { TransformerAttention(4, 2)->forward(t); }},
      {"compat::LayerNorm", [](auto& t) { compat::LayerNorm(4)->forward(t); }},
      {"compat::MultiheadAttention", [](auto& t) { compat::MultiheadAttention(4, 2)->forward(t, t, t); }},
      {"compat::TransformerEncoderLayer",
       [](auto& t) { compat::TransformerEncoderLayer(4, 2)->forward(t); }}};
}

}  // namespace

TEST_CASE("Modules refuse sizes without meaning or memory by name", "[extremes]") {
  for (const auto& probe : sizes()) {
    for (const int64_t size : kSizesWithoutMeaning) CHECK_NAMED(probe, size);
  }
}

TEST_CASE("Modules refuse probabilities and eps without meaning by name", "[extremes]") {
  using Block = TransformerBlockOptions;
  const std::vector<Probe<double>> probes = {
      {"CausalAttention", [](double p) { CausalAttention(4, 4, 6, p); }},
      {"MultiHeadAttentionWrapper", [](double p) { MultiHeadAttentionWrapper(4, 4, 6, p, 2); }},
      {"MultiHeadAttention", [](double p) { MultiHeadAttention(4, 4, 6, p, 2); }},
      {"GroupedQueryAttention", [](double p) { GroupedQueryAttention(4, 4, 6, p, 2, 1); }},
      {"MultiHeadSelfAttention", [](double p) { MultiHeadSelfAttention(4, 2, p); }},
      {"FusedSelfAttention",
       [](double p) { FusedSelfAttention(FusedSelfAttentionOptions(4, 2).dropout(p)); }},
      {"CrossAttention", [](double p) { CrossAttention(4, 4, 4, p, 2); }},
      {"ScaledDotProductAttention", [](double p) { ScaledDotProductAttention{p}; }},
      {"TransformerAttention",
       [](double p) { TransformerAttention(TransformerAttentionOptions(4, 2).dropout(p)); }},
      {"TransformerBlock", [](double p) { TransformerBlock(Block(4, 2).dropout(p)); }},
      {"DecoderBlock", [](double p) { DecoderBlock(Block(4, 2).dropout(p)); }},
      {"LayerNorm", [](double eps) { LayerNorm(LayerNormOptions(4).eps(-std::abs(eps))); }},
      {"RMSNorm", [](double eps) { RMSNorm(RMSNormOptions(4).eps(-std::abs(eps))); }}};
  constexpr auto kInf = std::numeric_limits<double>::infinity();
  for (const auto& probe : probes) {
    for (const double p : {-1.0, 2.0, kInf, -kInf, std::numeric_limits<double>::quiet_NaN()})
      CHECK_NAMED(probe, p);
  }
}

TEST_CASE("Modules refuse tensors that they cannot read by name", "[extremes]") {
  const auto plain = at::zeros({2, 3, 4});
  const std::vector<at::Tensor> strange = {{},
                                           at::zeros({}),
                                           at::zeros({4}),
                                           at::zeros({1, 1, 1, 3, 4}),
                                           at::zeros({2, 3, 5}),
                                           plain.to(at::kLong),
                                           plain.to(at::kDouble),
                                           plain.to(at::kComplexFloat),
                                           plain.to(at::kMeta),
                                           plain.to_sparse(),
                                           plain.to_mkldnn(),
                                           at::quantize_per_tensor(plain, 0.1, 0, at::kQInt8),
                                           at::_nested_tensor_from_tensor_list({plain[0], plain[1]})};
  for (const auto& probe : forwards()) {
    for (const auto& tensor : strange) {
      if (probe.name.ends_with("LayerNorm") && tensor.defined() && tensor.dim() > 0 && !tensor.is_nested() &&
          tensor.size(-1) == 4 && tensor.layout() == at::kStrided && tensor.scalar_type() == at::kFloat &&
          tensor.is_cpu()) {
        continue;  // a norm takes any rank
      }
      CHECK_NAMED(probe, tensor);
    }
  }
}

// Invariants between the classes and within each, for any weights.

namespace {

struct Case {
  const char* name;
  bool causal;
  std::function<std::pair<at::Tensor, at::Tensor>(const at::Tensor&)> run;
};

template <class Holder>
Case case_of(const char* name, Holder module, bool causal) {
  module->eval();
  return {name, causal, [module](const at::Tensor& x) mutable {
            return module->forward_with_weights(x, Mask(), Weights::Clean);
          }};
}

// Every self-attention class, with 6 input features.
std::vector<Case> classes() {
  at::manual_seed(8);
  auto shared = SharedHeadAttention(6, 2);
  return {case_of("SelfAttentionV1", SelfAttentionV1(6, 4), false),
          case_of("SelfAttentionV2", SelfAttentionV2(6, 4), false),
          case_of("MatrixSelfAttention", MatrixSelfAttention(6, 4), false),
          case_of("CausalAttention", CausalAttention(6, 4, 9, 0.1), true),
          case_of("MultiHeadAttentionWrapper", MultiHeadAttentionWrapper(6, 4, 9, 0.1, 2), true),
          case_of("MultiHeadAttention", MultiHeadAttention(6, 4, 9, 0.1, 2), true),
          case_of("MultiHeadSelfAttention", MultiHeadSelfAttention(6, 2, 0.1), false),
          case_of("FusedSelfAttention", FusedSelfAttention(6, 2), false),
          {"SharedHeadAttention", false,
           [shared](const at::Tensor& x) mutable { return shared->forward_with_weights(x, x, x); }}};
}

}  // namespace

TEST_CASE("Weights are rows that sum to 1, and equal batch items give equal results", "[invariants]") {
  const auto one = at::randn({5, 6});
  for (auto& c : classes()) {
    INFO(c.name);
    const auto [y, weights] = c.run(at::stack({one, one}));
    CHECK_CLOSE(weights.sum(-1), at::ones(weights.sizes().slice(0, static_cast<size_t>(weights.dim() - 1))));
    // The results need not be equal bit for bit: LibTorch's products in the projections may round a row
    // differently at another position.
    CHECK_CLOSE(y[0], y[1]);
    CHECK_CLOSE(weights[0], weights[1]);
  }
}

TEST_CASE("A causal class: a token changes nothing before it and something from it on", "[invariants]") {
  const auto x = at::randn({2, 7, 6});
  for (auto& c : classes()) {
    INFO(c.name);
    auto changed = x.clone();
    changed.select(1, 4).add_(0.5);
    const auto before = c.run(x).first, after = c.run(changed).first;
    if (c.causal) {
      CHECK(bit_equal(before.slice(1, 0, 4), after.slice(1, 0, 4)));
      CHECK((before - after).abs().amax(-1).slice(1, 4).gt(0).all().item<bool>());
      CHECK(c.run(x).second.triu(1).eq(0).all().item<bool>());
    } else {
      CHECK((before - after).slice(1, 0, 4).ne(0).any().item<bool>());
    }
  }
}

TEST_CASE("Without a causal mask the order of the tokens does not matter", "[invariants]") {
  const auto x = at::randn({2, 5, 6});
  const auto order = at::tensor({3, 0, 4, 2, 1}, at::kLong);
  for (auto& c : classes()) {
    if (c.causal) continue;
    INFO(c.name);
    CHECK_CLOSE(c.run(x.index_select(1, order)).first, c.run(x).first.index_select(1, order));
  }
  // Keys are permuted together with values, and queries stay in place.
  CrossAttention cross(6, 6, 4, 0.0, 2);
  CHECK_CLOSE(cross->forward(x, x.index_select(1, order)), cross->forward(x, x));
}

TEST_CASE("The first causal row is the value of the first token", "[invariants]") {
  CausalAttention single(3, 2, 6, 0.0);
  CHECK_CLOSE(single->forward(batch()).select(1, 0), single->W_value->forward(batch().select(1, 0)));
  MultiHeadAttention multi(3, 2, 6, 0.0, 2);
  CHECK_CLOSE(multi->forward(batch()).select(1, 0),
              multi->out_proj->forward(multi->W_value->forward(batch().select(1, 0))));
}

TEST_CASE("One seed gives the classes of chapter 3 the same projections", "[invariants]") {
  at::manual_seed(123);
  CausalAttention causal(3, 2, 6, 0.0);
  at::manual_seed(123);
  MultiHeadAttentionWrapper wrapper(3, 2, 6, 0.0, 2);
  at::manual_seed(123);
  MultiHeadAttention multi(3, 2, 6, 0.0, 2);
  CHECK(bit_equal(wrapper->forward(batch()).slice(-1, 0, 2), causal->forward(batch())));
  CHECK(bit_equal(multi->W_query->weight, causal->W_query->weight));
  CHECK(bit_equal(multi->W_key->weight, causal->W_key->weight));
  CHECK(bit_equal(multi->W_value->weight, causal->W_value->weight));
}

TEST_CASE("One row by hand is the row of the module", "[invariants]") {
  // Cells 17 to 25: the second token's query against all keys.
  at::manual_seed(123);
  SelfAttentionV1 module(3, 2);
  const auto query = sentence()[1].matmul(module->W_query);
  const auto scores = query.matmul(sentence().matmul(module->W_key).t());
  CHECK(as_printed(query, at::tensor({.4306f, 1.4551f})));
  CHECK(as_printed(scores, at::tensor({1.2705f, 1.8524f, 1.8111f, 1.0795f, .5577f, 1.5440f})));
  const auto weights = at::softmax(scores / std::sqrt(2.0), -1);
  CHECK(as_printed(weights, at::tensor({.1500f, .2264f, .2199f, .1311f, .0906f, .1820f})));
  const auto [y, all] = module->forward_with_weights(sentence());
  CHECK_CLOSE(all[1], weights);
  CHECK_CLOSE(y[1], weights.matmul(sentence().matmul(module->W_value)));
}

TEST_CASE("Scores by loop, by product, softmax and contexts without weights agree", "[invariants]") {
  // Cells 3 to 13: queries, keys and values are the tokens themselves, unscaled.
  const auto x = sentence();
  auto loop = at::zeros({6, 6});
  for (int64_t i = 0; i < 6; ++i) {
    for (int64_t j = 0; j < 6; ++j) loop[i][j] = x[i].dot(x[j]);
  }
  CHECK_CLOSE(loop, x.matmul(x.t()));
  const auto result = attention(x, x, x, {.scale = 1.0}, AttentionExtras{.weights = Weights::Clean});
  CHECK_CLOSE(result.weights, at::softmax(loop, -1));
  CHECK(as_printed(result.weights[1], at::tensor({.1385f, .2379f, .2333f, .1240f, .1082f, .1581f})));
  CHECK(as_printed(result.output[1], at::tensor({.4419f, .6515f, .5683f})));
  // The naive softmax overflows where the stable one does not.
  const auto large = at::tensor({100.0f, 0.0f});
  CHECK(std::isnan((large.exp() / large.exp().sum()).max().item<float>()));
  CHECK(at::softmax(large, 0)[0].item<float>() == 1.0f);
}

TEST_CASE("The last two dimensions multiply, whatever stands before them", "[invariants]") {
  const auto a = table({{.2745f, .6584f, .2775f, .8573f},
                        {.8993f, .0390f, .9268f, .7388f},
                        {.7179f, .7058f, .9156f, .4340f},
                        {.0772f, .3565f, .1479f, .5331f},
                        {.4066f, .2318f, .4545f, .9737f},
                        {.4606f, .5159f, .4220f, .5786f}})
                     .view({1, 2, 3, 4});
  const auto product = a.matmul(a.transpose(2, 3));
  CHECK(as_printed(
      product[0][0],
      table({{1.3208f, 1.1631f, 1.2879f}, {1.1631f, 2.2150f, 1.8424f}, {1.2879f, 1.8424f, 2.0402f}})));
  CHECK(as_printed(product[0][1],
                   table({{.4391f, .7003f, .5903f}, {.7003f, 1.3737f, 1.0620f}, {.5903f, 1.0620f, .9912f}})));
  for (int64_t head = 0; head < 2; ++head) CHECK_CLOSE(product[0][head], a[0][head].matmul(a[0][head].t()));
  CHECK(bit_equal(merge_heads(split_heads(a[0], 2)), a[0]));
}

TEST_CASE("A uniform number is the low 24 bits of the generator's", "[invariants]") {
  at::manual_seed(123);
  CHECK(std::abs(at::rand({1}).item<float>() - 0.29611194f) < 1e-8f);
}

TEST_CASE("Attention fits a residual connection where d_in equals d_out", "[invariants]") {
  MultiHeadAttention module(6, 6, 5, 0.0, 2);
  const auto x = at::randn({2, 5, 6});
  CHECK((x + module->forward(x)).sizes() == x.sizes());
}
