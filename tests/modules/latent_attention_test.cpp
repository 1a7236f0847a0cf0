#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <attentive/cache/kv_cache.h>
#include <attentive/modules/latent_attention.h>

#include "functional/adapters.h"
#include "modules/mixer_cases.h"
#include "support/errors.h"
#include "support/module_suite.h"

using namespace attentive;
using attentive::test::value_error;

namespace {

LatentAttentionOptions small_latent() {
  return LatentAttentionOptions(6, 2).kv_lora_rank(5).qk_nope_head_dim(3).qk_rope_head_dim(4).v_head_dim(2);
}

LatentAttentionOptions latent_options(const nlohmann::json& python) {
  const auto integer = [&](const char* name) { return python.at(name).get<int64_t>(); };
  auto options = LatentAttentionOptions(integer("hidden_size"), integer("num_attention_heads"))
                     .kv_lora_rank(integer("kv_lora_rank"))
                     .qk_nope_head_dim(integer("qk_nope_head_dim"))
                     .qk_rope_head_dim(integer("qk_rope_head_dim"))
                     .v_head_dim(integer("v_head_dim"))
                     .attention_bias(python.at("attention_bias").get<bool>());
  if (!python.at("q_lora_rank").is_null()) options.q_lora_rank(integer("q_lora_rank"));
  options.rotary() = test::rotary_options(python.at("rope"));
  if (!python.at("rope_interleave").get<bool>()) options.rotary().pairing(RotaryPairing::Halves);
  return options;
}

void check_latent_cases(const std::vector<test::MixerCase>& cases) {
  for (const auto& one : cases) {
    INFO(one.file.name << " " << one.options.dump());
    at::manual_seed(7);
    LatentAttention module(latent_options(one.options));
    const auto mask = Mask::key_keep(one.keep);
    test::check_mixer(one, *module, [&](const at::Tensor& x) { return module->forward(x, mask); });
    DenseKVCache cache(module->cache_options(2, one.x.size(0)), one.x.size(1));
    const auto begin = [&] {
      cache.reset();
      cache.set_padding(one.padding);
    };
    test::check_mixer_steps(one, begin, [&](const at::Tensor& tokens) {
      const auto output = module->forward_cached(tokens, cache, 0);
      CHECK(bit_equal(module->forward_cached(tokens, cache, 1), output));
      return output;
    });
  }
}

}  // namespace

TEST_CASE("LatentAttention equals transformers' DeepseekV3Attention", "[latent_attention][mixers]") {
  const auto plain = test::committed_mixers("latent"), extended = test::committed_mixers("yarn");
  REQUIRE(plain.size() == 7);
  REQUIRE(extended.size() == 9);
  check_latent_cases(plain);
  check_latent_cases(extended);
}

TEST_CASE("LatentAttention equals DeepseekV3Attention of drawn sizes", "[latent_attention][mixers][python]") {
  NEEDS_PYTHON("transformers");
  const auto cases = test::drawn_mixers(GENERATE("latent", "yarn"));
  REQUIRE(cases.size() == 50);
  check_latent_cases(cases);
}

TEST_CASE("LatentAttention is a torch::nn citizen", "[latent_attention]") {
  test::ModuleSuite<LatentAttention> suite;
  suite.input_shape = {2, 5, 6};
  suite.unbatched = true;
  suite.meta = false;  // its norms, as ATen's
  suite.make = [] { return LatentAttention(small_latent().dropout(0.3)); };
  suite.keys = {"q_proj.weight", "kv_a_proj_with_mqa.weight", "kv_a_layernorm.weight", "kv_b_proj.weight",
                "o_proj.weight"};
  suite.run();
  suite.make = [] {
    return LatentAttention(small_latent().q_lora_rank(4).attention_bias(true).dropout(0.3));
  };
  suite.keys = {"q_a_proj.weight",
                "q_a_proj.bias",
                "q_a_layernorm.weight",
                "q_b_proj.weight",
                "kv_a_proj_with_mqa.weight",
                "kv_a_proj_with_mqa.bias",
                "kv_a_layernorm.weight",
                "kv_b_proj.weight",
                "o_proj.weight",
                "o_proj.bias"};
  suite.run();
}

TEST_CASE("LatentAttention decodes as it computes whole sequences", "[latent_attention]") {
  const auto type = GENERATE(at::kFloat, at::kDouble, at::kBFloat16, at::kHalf);
  INFO(c10::toString(type));
  const at::NoGradGuard no_grad;
  // Heads that fill the vectors of the pass for few queries, and ranks that no vector divides.
  for (const auto& [heads, rank] : {std::pair(16, 40), std::pair(3, 37), std::pair(20, 64)}) {
    INFO(heads << " heads, rank " << rank);
    LatentAttention module(
        LatentAttentionOptions(24, heads).kv_lora_rank(rank).qk_nope_head_dim(12).qk_rope_head_dim(8));
    module->to(type);
    DenseKVCache cache(module->cache_options(1, 2), 300);
    const auto x = at::randn({2, 300, 24}).to(type);
    std::vector<at::Tensor> outputs;
    int64_t first = 0;
    for (const int64_t length : {150, 1, 4, 100, 1, 44}) {
      outputs.push_back(module->forward_cached(x.narrow(1, first, length), cache, 0));
      first += length;
    }
    const double rtol = type == at::kFloat    ? 1e-5
                        : type == at::kDouble ? 1e-12
                        : type == at::kHalf   ? 5e-3
                                              : 4e-2;
    CHECK_WITHIN(at::cat(outputs, 1), module->forward(x), {rtol, type == at::kDouble ? 0 : 2e-6});
  }
}

TEST_CASE("LatentAttention with a cache has the same bits for any number of threads", "[latent_attention]") {
  const at::NoGradGuard no_grad;
  LatentAttention module(LatentAttentionOptions(32, 16).kv_lora_rank(48));
  const auto x = at::randn({2, 2100, 32});
  const auto last = [&](int threads) {
    const auto before = at::get_num_threads();
    at::set_num_threads(threads);
    DenseKVCache cache(module->cache_options(1, 2), 2100);
    module->forward_cached(x.narrow(1, 0, 2099), cache, 0);
    const auto y = module->forward_cached(x.narrow(1, 2099, 1), cache, 0);
    at::set_num_threads(before);
    return y;
  };
  CHECK(bit_equal(last(1), last(2)));
}

TEST_CASE("LatentAttention: hidden NaN, no tokens, windows, adapters", "[latent_attention]") {
  const at::NoGradGuard no_grad;
  LatentAttention module(small_latent());
  auto x = at::randn({2, 6, 6});
  SECTION("padding may be NaN") {
    const auto want = module->forward(x.narrow(1, 2, 4));
    x.narrow(1, 0, 2).fill_(std::numeric_limits<double>::quiet_NaN());
    for (const int64_t chunk : {1, 2, 6}) {
      INFO("chunks of " << chunk);
      DenseKVCache cache(module->cache_options(1, 2), 6);
      cache.set_padding(at::full({2}, 2, at::kLong));
      std::vector<at::Tensor> outputs;
      for (const auto& part : x.split(chunk, 1)) outputs.push_back(module->forward_cached(part, cache, 0));
      CHECK_CLOSE(at::cat(outputs, 1).narrow(1, 2, 4), want);
    }
  }
  SECTION("no tokens") {
    CHECK(module->forward(x.narrow(1, 0, 0)).sizes() == at::IntArrayRef({2, 0, 6}));
    CHECK(module->forward(x.narrow(0, 0, 0)).sizes() == at::IntArrayRef({0, 6, 6}));
    DenseKVCache cache(module->cache_options(1, 2), 6);
    CHECK(module->forward_cached(x.narrow(1, 0, 0), cache, 0).sizes() == at::IntArrayRef({2, 0, 6}));
    CHECK(cache.position() == 0);
  }
  SECTION("a window and a ring") {
    auto options = small_latent();
    options.attention().window = {2, 0};
    LatentAttention windowed(options);
    RingKVCache cache(windowed->cache_options(1, 2), 3, 2);
    std::vector<at::Tensor> outputs;
    for (const auto& part : x.split(2, 1)) outputs.push_back(windowed->forward_cached(part, cache, 0));
    CHECK_CLOSE(at::cat(outputs, 1), windowed->forward(x));
  }
  SECTION("an adapter of kv_b_proj") {
    auto adapter = std::make_shared<LowRank>();
    adapter->a = at::randn({2, 5});
    adapter->b = at::randn({10, 2});
    const auto plain = module->forward(x);
    put_adapter(module->kv_b_proj->weight, {adapter, 0, 0, 10});
    const auto want = module->forward(x);
    CHECK_FALSE(at::allclose(want, plain));
    DenseKVCache cache(module->cache_options(1, 2), 6);
    std::vector<at::Tensor> outputs;
    for (const auto& part : x.split(1, 1)) outputs.push_back(module->forward_cached(part, cache, 0));
    CHECK_CLOSE(at::cat(outputs, 1), want);
    remove_adapter(*adapter);
  }
}

TEST_CASE("LatentAttention multiplies its scores by YaRN's factor unless it has a scale",
          "[latent_attention]") {
  auto options = small_latent();
  options.rotary().scaling(RotaryScaling::Yarn).factor(40).mscale_all_dim(1);
  at::manual_seed(7);
  LatentAttention usual(options);
  const auto m = 1 + 0.1 * std::log(40.0);
  options.attention().scale = m * m / std::sqrt(7.0);
  at::manual_seed(7);
  LatentAttention same(options);
  options.attention().scale = 1 / std::sqrt(7.0);
  at::manual_seed(7);
  LatentAttention other(options);
  const auto x = at::randn({2, 5, 6});
  CHECK_CLOSE(usual->forward(x), same->forward(x));
  CHECK_FALSE(at::allclose(usual->forward(x), other->forward(x)));
}

TEST_CASE("LatentAttention names what is wrong", "[latent_attention]") {
  const auto of = [](const LatentAttentionOptions& options) {
    return value_error([&] { return LatentAttention(options); });
  };
  CHECK(of(small_latent().q_lora_rank(-1)) == "LatentAttention: expected q_lora_rank >= 0, got -1");
  CHECK(of(small_latent().kv_lora_rank(0)) == "LatentAttention: expected kv_lora_rank > 0, got 0");
  CHECK(of(small_latent().qk_rope_head_dim(3)) == "RotaryPositions: expected an even head_dim > 0, got 3");
  CHECK(of(small_latent().qk_nope_head_dim(0)) ==
        "LatentAttention: expected qk_nope_head_dim in [1, 1048576], got 0");
  CHECK(of(small_latent().v_head_dim(0)) == "LatentAttention: expected v_head_dim in [1, 1048576], got 0");
  CHECK(of(small_latent().eps(-1)) == "LatentAttention: expected eps to be finite and not negative, got -1");

  const at::NoGradGuard no_grad;
  LatentAttention module(small_latent().context_length(4));
  const auto x = at::randn({1, 2, 6});
  CHECK(value_error([&] {
          return module->forward(at::randn({1, 5, 6}));
        }) == "LatentAttention: expected at most context_length = 4 tokens, got 5");
  CHECK(value_error([&] {
          return module->forward(at::randn({1, 2, 5}));
        }) == "LatentAttention: expected x of shape (B, T, 6) or (T, 6), got (1, 2, 5)");
  DenseKVCache other({.head_dim = 9}, 4);
  CHECK(value_error([&] { return module->forward_cached(x, other, 0); }) ==
        "LatentAttention: expected a cache of its cache_options(): num_kv_heads = 1, head_dim = 9, "
        "values_in_keys = 5, got 1, 9, 0");
  DenseKVCache cache(module->cache_options(1, 1), 8);
  CHECK(value_error([&] { return module->forward_cached(x, cache, 1); }) ==
        "LatentAttention: expected a layer of the cache in [0, 1), got 1");
  module->forward_cached(at::randn({1, 3, 6}), cache, 0);
  CHECK(value_error([&] { return module->forward_cached(x, cache, 0); }) ==
        "LatentAttention: expected at most context_length = 4 tokens, got 5");
  CHECK(cache.position() == 3);
}
