// Under autocast, a model computes the same with and without a cache.

#include <algorithm>

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/models/generate.h>
#include <attentive/models/gpt.h>

#include "support/autocast.h"
#include "support/compare.h"
#include "support/errors.h"

using namespace attentive;
using attentive::test::CpuAutocast;

namespace {

struct AutocastCase {
  const char* name;
  GPTOptions options;
};

std::vector<AutocastCase> autocast_cases() {
  const auto base = GPTOptions(13, 40, 24, 4, 3);
  const auto turned = GPTOptions(base).positions(GPTPositions::Rotary);
  return {{"learned", base},
          {"tied", GPTOptions(base).tied(true)},
          {"rotary, grouped", GPTOptions(turned).num_kv_heads(2)},
          {"window in a ring", GPTOptions(turned).window(5).context_length(0)}};
}

GPT make_for_evaluation(const GPTOptions& options) {
  at::manual_seed(1);
  GPT model(options);
  model->eval();
  return model;
}

}  // namespace

TEST_CASE("A cached GPT under autocast gives the logits of the whole text", "[gpt][kv_cache][autocast]") {
  const at::NoGradGuard no_grad;
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    for (const auto& [name, options] : autocast_cases()) {
      INFO(name << ", " << c10::toString(type));
      auto model = make_for_evaluation(options);
      const auto wide = model->make_cache();  // outside autocast: the model's dtype
      const CpuAutocast autocast(type);
      const auto narrow = model->make_cache();
      CHECK(wide->options().dtype == at::kFloat);
      CHECK(narrow->options().dtype == type);
      const auto tokens = std::min<int64_t>(narrow->room(), 9);
      const auto ids = at::randint(13, {1, tokens}, at::kLong);
      const auto whole = model->forward(ids);
      CHECK(whole.scalar_type() == type);
      for (const auto& cache : {wide.get(), narrow.get()}) {
        // Both compute the same products of the same numbers.
        CHECK(bit_equal(model->forward_cached(ids, *cache), whole));
        cache->reset();
        for (int64_t at = 0; at < tokens; ++at) {
          const auto logits = model->forward_cached(ids.narrow(1, at, 1), *cache);
          CHECK(difference(logits, whole.narrow(1, at, 1), tolerance_of(type)) == "");
        }
      }
    }
  }
}

TEST_CASE("generate under autocast gives the same tokens with and without its cache",
          "[generate][autocast]") {
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    for (const auto& [name, options] : autocast_cases()) {
      INFO(name << ", " << c10::toString(type));
      auto model = make_for_evaluation(options);
      {
        // Widely separated logits, so that rounding that depends on a product's shape does not change the
        // token.
        const at::NoGradGuard no_grad;
        (options.tied() ? model->tok_emb->weight : model->out_head->weight).mul_(8);
      }
      const CpuAutocast autocast(type);
      const auto ids = [&](bool cache) {
        return generate(*model, {1, 2, 3},
                        {.max_new_tokens = 20, .sampling = {.temperature = 0}, .use_cache = cache});
      };
      const auto cached = ids(true);
      CHECK(cached.size() == 20);
      CHECK(cached == ids(false));
    }
  }
}

TEST_CASE("A cache that was made under autocast is refused outside it", "[gpt][kv_cache][autocast]") {
  const at::NoGradGuard no_grad;
  auto model = make_for_evaluation(autocast_cases()[0].options);
  const auto cache = [&] {
    const CpuAutocast autocast(at::kBFloat16);
    return model->make_cache();
  }();
  CHECK(test::type_error([&] {
          model->forward_cached(at::randint(13, {1, 3}, at::kLong), *cache);
        }) == "KVCache: expected k and v of dtype BFloat16, got Float and Float");
}

TEST_CASE("Attention with normalized keys caches what autocast reads", "[transformer_attention][autocast]") {
  const at::NoGradGuard no_grad;
  at::manual_seed(2);
  TransformerAttention attention(
      TransformerAttentionOptions(16, 2).qk_norm(true).output_gate(true).rotary(RotaryPositionsOptions(2)));
  attention->eval();
  const auto x = at::randn({2, 6, 16});
  const CpuAutocast autocast(at::kBFloat16);
  const auto whole = attention->forward(x);
  for (const auto kept : {at::kFloat, at::kBFloat16}) {
    DenseKVCache cache({.batch = 2, .num_kv_heads = 2, .head_dim = 8, .dtype = kept}, 8);
    CHECK(bit_equal(attention->forward_cached(x, cache, 0), whole));
  }
}
