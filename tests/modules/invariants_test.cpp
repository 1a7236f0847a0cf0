// Invariants between the classes and within each, for any weights.

#include <cmath>
#include <functional>
#include <memory>

#include <ATen/ops/ones.h>
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
