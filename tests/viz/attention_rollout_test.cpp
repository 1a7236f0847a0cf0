#include <cmath>

#include <ATen/ops/full.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/models/vit.h>
#include <attentive/viz/attention_view.h>
#include <attentive/viz/head_statistics.h>

#include "support/compare.h"
#include "support/errors.h"
#include "viz/recorded.h"

using namespace attentive;
using namespace attentive::test;

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
  const auto square = recorded(at::randn({1, 1, 3, 4}), at::randn({1, 1, 3, 4}));
  const auto larger = recorded(at::randn({1, 1, 4, 4}), at::randn({1, 1, 4, 4}));
  const auto cross = recorded(at::randn({1, 1, 3, 4}), at::randn({1, 1, 4, 4}));
  CHECK(value_error([&] { attention_rollout({cross}); }) ==
        "attention_rollout: call 0: expected self-attention over 3 tokens, got 3 queries and 4 keys");
  CHECK(value_error([&] {
          attention_rollout({square, larger});
        }) == "attention_rollout: call 0: expected self-attention over 3 tokens, got 4 queries and 4 keys");
  CHECK(value_error([&] { attention_rollout({square}, 1); }) ==
        "attention_rollout: call 0: expected a batch item in [0, 1), got 1");
  CHECK(attention_rollout({}).empty());
}
