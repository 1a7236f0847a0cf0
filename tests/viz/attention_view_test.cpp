#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/functional/linear_attention.h>
#include <attentive/modules/multi_head_attention.h>
#include <attentive/viz/attention_view.h>

#include "support/compare.h"
#include "support/errors.h"
#include "viz/recorded.h"

using namespace attentive;
using namespace attentive::test;

namespace {

// Two batch items; four heads, of which pairs share a key head; three queries at the end of five keys.
RecordedAttention grouped(at::ScalarType type = at::kFloat) {
  at::manual_seed(1);
  return recorded(at::randn({2, 4, 3, 8}).to(type), at::randn({2, 2, 5, 8}).to(type),
                  {.causal = Causal::BottomRight}, Mask::key_lengths(at::tensor({5, 4})));
}

}  // namespace

TEST_CASE("a view holds the weights, hidden keys and logsumexp of its batch item", "[viz]") {
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    const auto call = grouped(type);
    for (const int64_t batch : {0, 1}) {
      const auto view = attention_view(call, {.batch = batch});
      INFO(c10::toString(type) << ", item " << batch);
      CHECK(view.path == "call 0");
      CHECK(view.batch == batch);
      CHECK(view.heads == std::vector<int64_t>{0, 1, 2, 3});
      CHECK(view.weights.scalar_type() == at::kFloat);
      CHECK_CLOSE(view.weights, call.weights()[batch].to(at::kFloat));
      CHECK_CLOSE(view.logsumexp, call.logsumexp()[batch].to(at::kFloat));
      CHECK(view.visible.expand({4, 3, 5}).equal(call.visible()[batch]));
      CHECK(view.visible.size(0) == 1);  // stored once for all heads
      CHECK(view.key_origin == 2);
    }
  }
}

TEST_CASE("a view shows the chosen heads in their order, each with its own hidden keys", "[viz]") {
  const auto keep = at::rand({1, 4, 3, 5}).gt(0.4);
  const auto call = recorded(at::randn({1, 4, 3, 8}), at::randn({1, 4, 5, 8}), {}, Mask::keep(keep));
  const auto view = attention_view(call, {.heads = {3, 1}});
  CHECK(view.heads == std::vector<int64_t>{3, 1});
  for (const int64_t place : {0, 1}) {
    const auto head = view.heads[static_cast<size_t>(place)];
    CHECK_CLOSE(view.weights[place], call.weights(head)[0]);
    CHECK_CLOSE(view.logsumexp[place], call.logsumexp(head)[0]);
    CHECK(view.visible[place].equal(keep[0][head]));
  }
}

TEST_CASE("the keys' axis begins where the call's alignment says", "[viz]") {
  const auto q = at::randn({1, 1, 2, 4}), k = at::randn({1, 1, 5, 4});
  CHECK(attention_view(recorded(q, k, {.causal = Causal::BottomRight})).key_origin == 3);
  CHECK(attention_view(recorded(q, k, {.window = {1, 1}})).key_origin == 3);
  CHECK(attention_view(recorded(q, k, {.causal = Causal::TopLeft})).key_origin == 0);
  CHECK(attention_view(recorded(q, k)).key_origin == 0);  // cross-attention
}

TEST_CASE("the texts of a view are those of queries and keys", "[viz]") {
  const auto call = grouped();
  const auto cached = attention_view(call, {.tokens = {"a", "b", "c", "d", "e"}});
  CHECK(cached.key_tokens == std::vector<std::string>{"a", "b", "c", "d", "e"});
  CHECK(cached.query_tokens == std::vector<std::string>{"c", "d", "e"});
  const auto crossed =
      attention_view(call, {.tokens = {"x", "y", "z"}, .key_tokens = {"a", "b", "c", "d", "e"}});
  CHECK(crossed.query_tokens == std::vector<std::string>{"x", "y", "z"});
  CHECK(crossed.key_tokens == cached.key_tokens);
  CHECK(attention_view(call).key_tokens.empty());
  CHECK(value_error([&] {
          attention_view(call, {.tokens = {"a", "b"}});
        }) == "attention_view: call 0: expected tokens for 5 keys, got 2");
  CHECK(value_error([&] {
          attention_view(call, {.tokens = {"a", "b"}, .key_tokens = cached.key_tokens});
        }) == "attention_view: call 0: expected tokens for 3 queries, got 2");
  CHECK(value_error([&] { attention_view(call, {.key_tokens = {"a"}}); }) ==
        "attention_view: call 0: expected key_tokens for 5 keys, got 1");
  const auto longer = recorded(at::randn({1, 1, 3, 4}), at::randn({1, 1, 2, 4}));
  CHECK(value_error([&] {
          attention_view(longer, {.tokens = {"a", "b"}});
        }) == "attention_view: call 0: expected key_tokens beside tokens for 3 queries and 2 keys");
}

TEST_CASE("neurons are the numbers that the scores are made of", "[viz]") {
  at::manual_seed(2);
  const auto call = recorded(at::randn({2, 4, 3, 8}), at::randn({2, 2, 5, 8}), {.scale = 0.7});
  const auto view = attention_view(call, {.neurons = {1, 2}, .batch = 1});
  REQUIRE(view.neurons.size() == 2);
  for (const auto& neurons : view.neurons) {
    CHECK(neurons.scale == 0.7);
    CHECK(neurons.q.sizes() == at::IntArrayRef{3, 8});
    const auto scores = neurons.scale * neurons.q.mm(neurons.k.t());
    CHECK_CLOSE(at::softmax(scores, 1), view.weights[neurons.head]);
  }
}

TEST_CASE("linear attention has no logsumexp", "[viz]") {
  AttentionRecorder recorder;
  linear_attention(at::randn({1, 2, 4, 8}), at::randn({1, 2, 4, 8}), at::randn({1, 2, 4, 8}),
                   {.causal = Causal::BottomRight});
  const auto view = attention_view(recorder.calls().at(0));
  CHECK(view.linear);
  CHECK_FALSE(view.logsumexp.defined());
  CHECK_CLOSE(view.weights, recorder.calls().at(0).weights()[0]);
}

TEST_CASE("views are normal tensors without a history, in any mode of the caller", "[viz]") {
  const c10::InferenceMode mode;
  const auto view = attention_view(recorded(at::randn({1, 1, 2, 4}), at::randn({1, 1, 2, 4})));
  CHECK_FALSE(view.weights.is_inference());
  CHECK_FALSE(view.weights.requires_grad());
}

TEST_CASE("a view that cannot be made is refused by name", "[viz]") {
  const auto call = grouped();
  CHECK(value_error([&] { attention_view(call, {.heads = {4}}); }) ==
        "attention_view: call 0: expected a head in [0, 4), got 4");
  CHECK(value_error([&] { attention_view(call, {.heads = {-1}}); }) ==
        "attention_view: call 0: expected a head in [0, 4), got -1");
  CHECK(value_error([&] {
          attention_view(call, {.heads = {1, 1}});
        }) == "attention_view: call 0: expected heads that are named once, got [1, 1]");
  CHECK(value_error([&] { attention_view(call, {.heads = {0}, .neurons = {1}}); }) ==
        "attention_view: call 0: expected neurons of a head that is shown, got those of head 1");
  CHECK(value_error([&] { attention_view(call, {.neurons = {7}}); }) ==
        "attention_view: call 0: expected a head in [0, 4), got 7");
  CHECK(value_error([&] { attention_view(call, {.batch = 2}); }) ==
        "attention_view: call 0: expected a batch item in [0, 2), got 2");
  CHECK(value_error([&] { attention_view(call, {.image = PatchImage{.rows = 2, .columns = 3}}); }) ==
        "attention_view: call 0: expected 5 tokens, got an image of 2 x 3 patches and 1 before them");
  CHECK(value_error([&] { attention_views(std::vector<RecordedAttention>{}); }) ==
        "attention_views: expected at least one recorded call, got none");
  CHECK(value_error([&] { attention_view(RecordedAttention{}); }).starts_with("attention_view: expected q"));
}

TEST_CASE("weights that no picture shows are refused with their head and query", "[viz]") {
  auto q = at::randn({1, 3, 4, 8});
  q[0][1][2].fill_(NAN);
  const auto call = recorded(q, at::randn({1, 3, 4, 8}));
  CHECK(value_error([&] { attention_view(call); }) ==
        "attention_view: call 0, head 1: expected finite weights that are not negative, got nan of query 2 "
        "for key 0");
  CHECK(attention_view(call, {.heads = {2, 0}}).weights.size(0) == 2);
}

TEST_CASE("the views of a model are named by its modules, of several calls by their numbers", "[viz]") {
  MultiHeadAttention mha(8, 8, 6, 0.0, 2);
  AttentionRecorder recorder(*mha);
  mha->forward(at::rand({1, 4, 8}));
  CHECK(attention_views(recorder).at(0).path == "(root)");
  mha->forward(at::rand({1, 4, 8}));
  const auto views = attention_views(recorder, {.heads = {1}});
  REQUIRE(views.size() == 2);
  CHECK(views[0].path == "(root), call 0");
  CHECK(views[1].path == "(root), call 1");
  CHECK(views[1].heads == std::vector<int64_t>{1});

  AttentionRecorder all;
  const auto ends = at::tensor({0, 2, 5}, at::kInt);
  attention_varlen(at::randn({5, 1, 4}), at::randn({5, 1, 4}), at::randn({5, 1, 4}), ends, ends);
  CHECK(attention_views(all).at(1).path == all.calls().at(1).path + ", sequence 1");
}
