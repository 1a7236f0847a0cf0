#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/tensor.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/models/gpt.h>

#include "support/compare.h"
#include "support/errors.h"

using namespace attentive;
using attentive::test::value_error;

namespace {

struct Case {
  const char* name;
  GPTOptions options;
};

std::vector<Case> cases() {
  const auto base = GPTOptions(13, 40, 24, 4, 3);
  const auto turned = GPTOptions(base).positions(GPTPositions::Rotary);
  const auto pairs =
      RotaryPositionsOptions(2).pairing(RotaryPairing::Halves).scaling(RotaryScaling::Ntk).factor(2);
  return {{"learned", base},
          {"rotary", turned},
          {"rotary halves, ntk, grouped", GPTOptions(turned).rotary(pairs).num_kv_heads(2)},
          {"window in a dense cache", GPTOptions(turned).window(5)},
          {"window in a ring", GPTOptions(turned).window(5).context_length(0)},
          {"window of one", GPTOptions(turned).window(1).context_length(0)}};
}

}  // namespace

TEST_CASE("A cached GPT gives the logits of the whole text at every step", "[gpt][kv_cache][cuda]") {
  const at::NoGradGuard no_grad;
  for (const auto& device : test::devices()) {
    for (const auto& [name, options] : cases()) {
      at::manual_seed(1);
      GPT model(options);
      model->eval();
      model->to(device);
      const auto ids = at::randint(13, {2, 33}, at::kLong).to(device);
      const auto whole = model->forward(ids);
      const auto cache = model->make_cache(2);
      // Prefills in chunks of several sizes (a ring accepts at most its window at once), then token by token.
      int64_t at = 0;
      for (const int64_t wanted : {5, 1, 3, 4}) {
        const auto tokens = std::min(wanted, cache->room());
        const auto logits = model->forward_cached(ids.narrow(1, at, tokens), *cache);
        INFO(name << ", chunk at " << at);
        CHECK_WITHIN(logits, whole.narrow(1, at, tokens), {0, 1e-5});
        at += tokens;
        CHECK(cache->position() == at);
      }
      for (; at < 33; ++at) {
        INFO(name << ", token " << at);
        CHECK_WITHIN(model->forward_cached(ids.narrow(1, at, 1), *cache), whole.narrow(1, at, 1), {0, 1e-5});
      }
    }
  }
}

TEST_CASE("A cached GPT follows beams", "[gpt][kv_cache]") {
  const at::NoGradGuard no_grad;
  at::manual_seed(2);
  GPT model(GPTOptions(13, 40, 24, 4, 3));
  model->eval();
  const auto prompt = at::randint(13, {1, 6}, at::kLong);
  const auto cache = model->make_cache();
  model->forward_cached(prompt, *cache);
  cache->reorder(at::tensor({0, 0, 0}));  // one prompt, three beams
  const auto next = at::tensor({3, 7, 9}).view({3, 1});
  model->forward_cached(next, *cache);
  cache->reorder(at::tensor({2, 0, 2}));  // the second beam dies, the third one splits
  const auto last = at::tensor({1, 2, 4}).view({3, 1});
  const auto got = model->forward_cached(last, *cache);
  const std::vector<int64_t> parents{2, 0, 2};
  for (int64_t beam = 0; beam < 3; ++beam) {
    const auto ids = at::cat({prompt[0], next[parents[static_cast<size_t>(beam)]], last[beam]}).unsqueeze(0);
    CHECK_WITHIN(got[beam][0], model->forward(ids)[0][7], {0, 1e-5});
  }
}

TEST_CASE("A cached GPT refuses what does not fit, by name", "[gpt][kv_cache]") {
  const at::NoGradGuard no_grad;
  GPT model(GPTOptions(13, 8, 24, 4, 3));
  model->eval();
  const auto ids = at::randint(13, {1, 6}, at::kLong);
  DenseKVCache small({.layers = 3, .num_kv_heads = 4, .head_dim = 6}, 5);
  CHECK(value_error([&] { return model->forward_cached(ids, small); }) ==
        "DenseKVCache: expected at most capacity = 5 tokens, got 0 + 6");
  const auto cache = model->make_cache();
  model->forward_cached(ids, *cache);
  CHECK(value_error([&] { return model->forward_cached(ids, *cache); }) ==
        "GPT: expected at most context_length = 8 tokens, got 12");
  CHECK(value_error([&] {
          return model->forward_cached(at::cat({ids, ids}).narrow(1, 0, 1), *cache);
        }).starts_with("KVCache: expected k and v of shape (1, 4, T, 6), got (2, 4, 1, 6)"));
  DenseKVCache shallow({.layers = 2, .num_kv_heads = 4, .head_dim = 6}, 8);
  CHECK(value_error([&] { return model->forward_cached(ids, shallow); }) ==
        "GPT: expected a cache of 3 layers, got 2");
  RingKVCache ring({.layers = 3, .num_kv_heads = 4, .head_dim = 6}, 8);
  CHECK(value_error([&] { return model->forward_cached(ids, ring); }) ==
        "TransformerAttention: expected a window of at most 8 tokens with this RingKVCache, got window.left "
        "= -1");
  model->to(at::kDouble);
  cache->reset();
  CHECK_THROWS_AS(model->forward_cached(ids, *cache), c10::TypeError);
}
