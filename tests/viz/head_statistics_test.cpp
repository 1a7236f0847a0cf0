#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/full.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/models/vit.h>
#include <attentive/viz/attention_view.h>
#include <attentive/viz/head_statistics.h>

#include "support/compare.h"
#include "support/errors.h"
#include "viz/page_reader.h"

using namespace attentive;
using namespace attentive::test;

namespace {

AttentionView view_of(const at::Tensor& weights, const at::Tensor& visible = {}) {
  AttentionView view{.path = "by hand", .weights = weights, .visible = visible};
  for (int64_t head = 0; head < weights.size(0); ++head) view.heads.push_back(head);
  return view;
}

bool close(std::optional<double> got, std::optional<double> want) {
  if (!got || !want) return got.has_value() == want.has_value();
  return std::abs(*got - *want) <= 1e-12 * std::max(1.0, std::abs(*want));
}

// Computes each number by its definition, in separate loops.
HeadStatistics by_loops(const AttentionView& view, int64_t head) {
  const auto weights = view.weights[head].to(at::kDouble);
  const auto visible = view.visible.expand(view.weights.sizes())[head];
  const auto queries = weights.size(0), keys = weights.size(1);
  std::vector<double> entropies, shares, distances, previous, first, sinks;
  for (int64_t i = 0; i < queries; ++i) {
    double entropy = 0, distance = 0, sum = 0;
    int64_t seen = 0;
    for (int64_t j = 0; j < keys; ++j) {
      const double w = weights[i][j].item<double>();
      seen += visible[i][j].item<bool>();
      sum += w;
      entropy -= w == 0 ? 0 : w * std::log2(w);
      distance += w * std::abs(static_cast<double>(i + view.key_origin - j));
    }
    if (seen == 0) continue;
    entropies.push_back(entropy);
    if (seen >= 2) shares.push_back(entropy / std::log2(static_cast<double>(seen)));
    distances.push_back(distance);
    const auto before = i + view.key_origin - 1;
    if (before >= 0 && before < keys && visible[i][before].item<bool>())
      previous.push_back(weights[i][before].item<double>());
    first.push_back(weights[i][0].item<double>());
    sinks.push_back(1 - sum);
  }
  const auto mean = [](const std::vector<double>& numbers) {
    double sum = 0;
    for (const auto number : numbers) sum += number;
    return numbers.empty() ? std::nullopt : std::optional(sum / static_cast<double>(numbers.size()));
  };
  auto sink = mean(sinks);
  if (sink) sink = std::max(0.0, *sink);
  return {mean(entropies), mean(shares), mean(distances), mean(previous), mean(first), sink};
}

void check_all(const AttentionView& view) {
  for (int64_t head = 0; head < view.weights.size(0); ++head) {
    const auto got = head_statistics(view, head), want = by_loops(view, head);
    INFO("head " << head);
    CHECK(close(got.entropy, want.entropy));
    CHECK(close(got.entropy_share, want.entropy_share));
    CHECK(close(got.distance, want.distance));
    CHECK(close(got.previous, want.previous));
    CHECK(close(got.first, want.first));
    CHECK(close(got.sink, want.sink));
  }
}

}  // namespace

TEST_CASE("every statistic equals plain loops", "[viz]") {
  at::manual_seed(4);
  for (const auto& [queries, keys] : {std::pair(7, 7), std::pair(4, 9), std::pair(9, 4), std::pair(1, 1)}) {
    for (const int64_t origin : {0, keys - queries, 2}) {
      auto visible = at::rand({3, queries, keys}).gt(0.4);
      visible[1] = false;  // a head whose queries see no key
      auto weights =
          at::softmax(2 * at::randn({3, queries, keys}), 2).masked_fill(visible.bitwise_not(), 0.0);
      weights[2] /= 2;  // as with a sink
      auto view = view_of(weights, visible);
      view.key_origin = origin;
      check_all(view);
    }
  }
}

TEST_CASE("statistics of recorded calls equal plain loops, with a sink too", "[viz]") {
  AttentionRecorder recorder;
  const auto q = at::randn({1, 2, 6, 8});
  AttentionExtras extras;
  extras.sinks = at::full({2}, 1.0);
  attention(q, q, q, {.causal = Causal::BottomRight, .window = {2, 0}}, extras);
  const auto view = attention_view(recorder.calls().at(0));
  check_all(view);
  CHECK(head_statistics(view, 0).sink > 0.05);
}

TEST_CASE("heads of which the answer is known", "[viz]") {
  const auto uniform = head_statistics(view_of(at::full({1, 4, 8}, 0.125F)), 0);
  CHECK(uniform.entropy == 3.0);
  CHECK(uniform.entropy_share == 1.0);
  CHECK(uniform.first == 0.125);
  CHECK(uniform.sink == 0.0);
  // Each query attends to the preceding token, and the first one to itself.
  auto shifted = at::zeros({1, 5, 5});
  shifted[0].slice(0, 1).slice(1, 0, 4).copy_(at::eye(4));
  shifted[0][0][0] = 1;
  const auto previous = head_statistics(view_of(shifted), 0);
  CHECK(previous.previous == 1.0);
  CHECK(previous.entropy == 0.0);
  CHECK(previous.distance == 0.8);
  CHECK(previous.first == 0.4);
}

TEST_CASE("numbers without a row are not set", "[viz]") {
  const auto none = head_statistics(view_of(at::zeros({1, 2, 2}), at::zeros({1, 1, 1}, at::kBool)), 0);
  CHECK(none == HeadStatistics{});
  const auto single = head_statistics(view_of(at::full({1, 1, 1}, 1.0F)), 0);
  CHECK(single.entropy == 0.0);
  CHECK_FALSE(single.entropy_share.has_value());
  CHECK_FALSE(single.previous.has_value());
  CHECK(single.first == 1.0);
}

TEST_CASE("statistics refuse a place and a view that are none", "[viz]") {
  const auto view = view_of(at::full({2, 1, 1}, 1.0F));
  CHECK(value_error([&] { head_statistics(view, 2); }) ==
        "head_statistics: expected a place in [0, 2), got 2");
  CHECK(value_error([&] { head_statistics(view, -1); }) ==
        "head_statistics: expected a place in [0, 2), got -1");
  CHECK(value_error([] {
          head_statistics(AttentionView{}, 0);
        }).starts_with("head_statistics: expected weights"));
}

namespace {

// Computes the rollout by plain loops, from the last layer down.
std::vector<double> looped(const std::vector<RecordedAttention>& calls, size_t layers, int64_t batch) {
  const auto tokens = static_cast<size_t>(calls[0].q.size(2));
  std::vector<double> reach(tokens, 0.0);
  reach[0] = 1;
  for (size_t layer = layers; layer-- > 0;) {
    const auto weights = calls[layer].weights()[batch];
    std::vector<double> below(tokens, 0.0);
    for (size_t i = 0; i < tokens; ++i) {
      std::vector<double> row(tokens, 0.0);
      double sum = 0;
      for (size_t j = 0; j < tokens; ++j) {
        for (int64_t head = 0; head < weights.size(0); ++head)
          row[j] += weights[head][static_cast<int64_t>(i)][static_cast<int64_t>(j)].item<double>() /
                    static_cast<double>(weights.size(0));
        if (i == j) row[j] += 1;
        sum += row[j];
      }
      for (size_t j = 0; j < tokens; ++j) below[j] += reach[i] * row[j] / sum;
    }
    reach = below;
  }
  return reach;
}

}  // namespace

TEST_CASE("the rollout of every layer equals plain loops", "[viz]") {
  at::manual_seed(3);
  ViT model(ViTOptions(4, 2, 1, 3).emb_dim(8).num_heads(2).num_layers(3));
  AttentionRecorder recorder(*model);
  model->forward(at::randn({2, 1, 4, 4}));
  const auto& calls = recorder.calls();
  REQUIRE(calls.size() == 3);
  const auto rollouts = attention_rollout(calls, 1);
  REQUIRE(rollouts.size() == 3);
  for (size_t layers = 1; layers <= 3; ++layers) {
    const auto want = looped(calls, layers, 1);
    const auto& got = rollouts[layers - 1];
    REQUIRE(got.sizes() == at::IntArrayRef{5});
    for (int64_t j = 0; j < 5; ++j)
      CHECK(std::abs(got[j].item<double>() - want[static_cast<size_t>(j)]) < 1e-6);
  }
  const auto views =
      attention_views(recorder, {.heads = {0}, .batch = 1, .image = PatchImage{.rows = 2, .columns = 2}});
  for (size_t i = 0; i < 3; ++i)
    CHECK(views[i].rollout.equal(rollouts[i]));  // over all heads, whichever are shown
  CHECK_FALSE(attention_views(recorder).at(0).rollout.defined());
}

TEST_CASE("rows with a sink are divided by their sums", "[viz]") {
  AttentionRecorder recorder;
  const auto q = at::randn({1, 2, 3, 4});
  AttentionExtras extras;
  extras.sinks = at::full({2}, 2.0);
  attention(q, q, q, {}, extras);
  CHECK(std::abs(attention_rollout(recorder.calls())[0].sum().item<double>() - 1) < 1e-6);
}

TEST_CASE("a rollout needs self-attention over the same tokens", "[viz]") {
  const auto square = recorded({1, 1, 3, 4}, {1, 1, 3, 4});
  const auto larger = recorded({1, 1, 4, 4}, {1, 1, 4, 4});
  const auto cross = recorded({1, 1, 3, 4}, {1, 1, 4, 4});
  CHECK(value_error([&] { attention_rollout({cross}); }) ==
        "attention_rollout: call 0: expected self-attention over 3 tokens, got 3 queries and 4 keys");
  CHECK(value_error([&] {
          attention_rollout({square, larger});
        }) == "attention_rollout: call 0: expected self-attention over 3 tokens, got 4 queries and 4 keys");
  CHECK(value_error([&] { attention_rollout({square}, 1); }) ==
        "attention_rollout: call 0: expected a batch item in [0, 1), got 1");
  CHECK(attention_rollout({}).empty());
}
