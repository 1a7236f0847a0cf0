// An AttentionRecorder around whole models: training, autocast, inference, caches.

#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_nested_tensor_from_tensor_list.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <attentive/functional/attention_recorder.h>
#include <attentive/functional/explain.h>
#include <attentive/models/generate.h>
#include <attentive/models/gpt.h>
#include <attentive/models/llama.h>
#include <attentive/models/vit.h>

#include "support/compare.h"
#include "support/extremes.h"

using namespace attentive;

namespace {

GPT make_seeded(const GPTOptions& options) {
  at::manual_seed(1);
  return GPT(options);
}

GPTOptions options() {
  return GPTOptions(13, 40, 24, 4, 3);
}

at::Tensor tokens(int64_t count) {
  at::manual_seed(2);
  return at::randint(13, {2, count}, at::kLong);
}

std::vector<at::Tensor> gradients_of(const GPT& model) {
  std::vector<at::Tensor> result;
  for (const auto& parameter : model->parameters()) result.push_back(parameter.grad());
  return result;
}

}  // namespace

TEST_CASE("every layer of a GPT is recorded, and nothing of it changes", "[recorder]") {
  const auto ids = tokens(9);
  // With dropout, so that an additional draw would be noticed.
  auto plain = make_seeded(options().dropout(0.2)), recorded = make_seeded(options().dropout(0.2));
  at::manual_seed(3);
  const auto want = plain->loss(ids, ids);
  want.backward();

  AttentionRecorder recorder(*recorded);
  at::manual_seed(3);
  const auto got = recorded->loss(ids, ids);
  got.backward();
  CHECK(bit_equal(got, want));
  const auto got_gradients = gradients_of(recorded), want_gradients = gradients_of(plain);
  for (size_t n = 0; n < want_gradients.size(); ++n) CHECK(bit_equal(got_gradients[n], want_gradients[n]));

  REQUIRE(recorder.calls().size() == 3);
  for (size_t n = 0; n < 3; ++n) {
    const auto& call = recorder.calls()[n];
    CHECK(call.path == "trf_blocks." + std::to_string(n) + ".att");
    const auto weights = call.weights();
    CHECK(weights.sizes() == at::IntArrayRef({2, 4, 9, 9}));
    CHECK_CLOSE(weights.sum(-1), at::ones({2, 4, 9}));
    CHECK(weights.triu(1).eq(0).all().item<bool>());
    CHECK(call.visible()[1][3].equal(at::ones({9, 9}, at::kBool).tril()));
  }
}

TEST_CASE("a GPT is recorded on each device, and its weights are there", "[recorder][cuda]") {
  auto model = make_seeded(options());
  const auto ids = tokens(9);
  const AttentionRecorder on_cpu(*model);
  model->forward(ids);
  for (const auto& device : test::devices()) {
    INFO("device " << device);
    auto twin = make_seeded(options());
    twin->to(device);
    const AttentionRecorder recorder(*twin);
    twin->forward(ids.to(device));
    REQUIRE(recorder.calls().size() == on_cpu.calls().size());
    for (size_t n = 0; n < recorder.calls().size(); ++n) {
      const auto weights = recorder.calls()[n].weights();
      CHECK(weights.device().type() == device.type());
      CHECK_WITHIN(weights.cpu(), on_cpu.calls()[n].weights(), {1e-5, 1e-6});
      CHECK(recorder.calls()[n].visible().cpu().equal(on_cpu.calls()[n].visible()));
    }
  }
}

TEST_CASE("layers of a GPT are chosen", "[recorder]") {
  auto model = make_seeded(options());
  const AttentionRecorder inside(*model, {.layers = "trf_blocks.0.*"}),
      ends(*model, {.layers = "*.[02].att"});
  model->forward(tokens(4));
  REQUIRE(inside.calls().size() == 1);
  CHECK(inside.calls()[0].path == "trf_blocks.0.att");
  REQUIRE(ends.calls().size() == 2);
  CHECK(ends.calls()[1].path == "trf_blocks.2.att");
  CHECK(ends.calls()[1].number == 2);
}

TEST_CASE("with a cache, each step records the keys of that time", "[recorder]") {
  for (const auto& model_options : {options().positions(GPTPositions::Rotary).num_kv_heads(2), options()}) {
    auto model = make_seeded(model_options);
    model->eval();
    const auto ids = tokens(8);
    const at::NoGradGuard no_gradients;
    AttentionRecorder whole(*model);
    model->forward(ids);

    AttentionRecorder recorder(*model);
    auto cache = model->make_cache(2);
    model->forward_cached(ids.slice(1, 0, 5), *cache);
    for (int64_t n = 5; n < 8; ++n) model->forward_cached(ids.slice(1, n, n + 1), *cache);
    cache->reset();  // and its contents are discarded
    model->forward_cached(ids.slice(1, 3, 8), *cache);

    REQUIRE(recorder.calls().size() == 5 * 3);
    for (size_t layer = 0; layer < 3; ++layer) {
      const auto want = whole.calls()[layer].weights();
      CHECK_CLOSE(recorder.calls()[layer].weights(), want.slice(2, 0, 5).slice(3, 0, 5));
      for (int64_t n = 5; n < 8; ++n) {
        const auto& call = recorder.calls()[3 * static_cast<size_t>(n - 4) + layer];
        CHECK(call.k.sizes() == at::IntArrayRef({2, model_options.num_kv_heads() == 0 ? 4 : 2, n + 1, 6}));
        CHECK(call.k.storage().nbytes() == call.k.nbytes());
        CHECK_CLOSE(call.weights(), want.slice(2, n, n + 1).slice(3, 0, n + 1));
      }
    }
  }
}

TEST_CASE("a cache of a window records the keys that it still holds", "[recorder]") {
  auto model = make_seeded(options().positions(GPTPositions::Rotary).window(4).context_length(0));
  model->eval();
  const auto ids = tokens(12);
  const at::NoGradGuard no_gradients;
  AttentionRecorder whole(*model), steps(*model);
  model->forward(ids);
  steps.clear();
  auto cache = model->make_cache(2);
  for (int64_t n = 0; n < 12; ++n) model->forward_cached(ids.slice(1, n, n + 1), *cache);
  for (size_t layer = 0; layer < 3; ++layer) {
    const auto& last = steps.calls()[3 * 11 + layer];
    CHECK(last.k.size(2) == 4);
    CHECK_CLOSE(last.weights(), whole.calls()[layer].weights().slice(2, 11).slice(3, 8));
  }
}

TEST_CASE("a GPT is recorded under autocast and under InferenceMode", "[recorder]") {
  auto model = make_seeded(options());
  model->eval();
  const auto ids = tokens(7);
  at::Tensor exact;
  {
    const c10::InferenceMode mode;
    exact = model->forward(ids);
  }
  const auto under_autocast = [&] {
    at::autocast::set_autocast_enabled(at::kCPU, true);
    auto logits = model->forward(ids);
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::clear_cache();
    return logits;
  };
  const auto rounded = under_autocast();
  AttentionRecorder recorder(*model);
  at::Tensor inferred;
  {
    const c10::InferenceMode mode;
    inferred = model->forward(ids);
  }
  CHECK(bit_equal(inferred, exact));
  for (const auto& call : recorder.calls()) CHECK_FALSE(call.q.is_inference());
  const auto want = recorder.calls().at(2).weights();

  recorder.clear();
  CHECK(bit_equal(under_autocast(), rounded));
  REQUIRE(recorder.calls().size() == 3);
  CHECK(recorder.calls()[2].q.scalar_type() == at::kBFloat16);
  CHECK(difference(recorder.calls()[2].weights(), want, tolerance_of(at::kBFloat16)) == "");
}

TEST_CASE("attention of models in half types is the native kernel's, cached and under autocast",
          "[recorder][kv_cache][float16]") {
  const auto type = GENERATE(at::kBFloat16, at::kHalf);
  INFO(c10::toString(type));
  const at::NoGradGuard no_grad;
  const auto ids = tokens(9);
  const auto check = [&](auto& model, bool autocast) {
    model->eval();
    if (autocast) {
      at::autocast::set_autocast_enabled(at::kCPU, true);
      at::autocast::set_autocast_dtype(at::kCPU, type);
    } else {
      model->to(type);
    }
    AttentionRecorder recorder(*model);
    const auto cache = model->make_cache(2);
    const auto whole = model->forward(ids);
    const auto cached = model->forward_cached(ids.narrow(1, 0, 5), *cache);
    const auto last = model->forward_cached(ids.narrow(1, 5, 4), *cache);
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::clear_cache();
    CHECK(whole.scalar_type() == type);
    CHECK(difference(at::cat({cached, last}, 1), whole, tolerance_of(type)) == "");
    CHECK(recorder.calls().size() == 9);
    for (const auto& call : recorder.calls()) {
      CHECK(call.q.scalar_type() == type);
      CHECK(explain(call.q, call.k, call.k, call.options).chosen == Backend::Native);
    }
  };
  for (const bool autocast : {false, true}) {
    INFO((autocast ? "under" : "without") << " autocast");
    auto gpt = make_seeded(options());
    check(gpt, autocast);
    at::manual_seed(3);
    Llama llama(LlamaOptions(13, 24, 4, 3).num_kv_heads(2).context_length(40));
    check(llama, autocast);
  }
}

TEST_CASE("a ViT records the attention of its patches and its class token", "[recorder]") {
  ViT model(ViTOptions(8, 2, 1, 10).num_layers(2));
  model->eval();
  const AttentionRecorder recorder(*model);
  model->forward(at::randn({3, 1, 8, 8}));
  REQUIRE(recorder.calls().size() == 2);
  CHECK(recorder.calls()[1].path == "blocks.1.attn");
  CHECK(recorder.calls()[1].weights(/*head=*/2).sizes() == at::IntArrayRef({3, 17, 17}));
}

// Models and generation with invalid arguments: the error begins with a public name.

using namespace attentive::test;

namespace {

GPTOptions small() {
  return GPTOptions(7, 8, 4, 2, 1);
}

GPTOptions endless() {
  return small().positions(GPTPositions::Rotary).context_length(0);
}

GPT make(const GPTOptions& options = small()) {
  GPT model(options);
  model->eval();
  return model;
}

LlamaOptions llama() {
  return LlamaOptions(7, 4, 2, 1).context_length(8);
}

ViTOptions images() {
  return ViTOptions(4, 2, 1, 3).emb_dim(4).num_heads(2).num_layers(1);
}

}  // namespace

TEST_CASE("GPT and its cache refuse sizes without meaning or memory by name", "[gpt][extremes]") {
  // Avoids 0, which means the default.
  const auto given = [](int64_t n) { return n == 0 ? -1 : n; };
  const std::vector<Probe<int64_t>> probes = {
      {"GPT", [](int64_t n) { GPT(small().vocab_size(n)); }},
      {"GPT", [](int64_t n) { GPT(small().context_length(n)); }},
      {"GPT", [](int64_t n) { GPT(small().emb_dim(n)); }},
      {"GPT", [](int64_t n) { GPT(small().num_heads(n)); }},
      {"GPT", [](int64_t n) { GPT(small().num_layers(n)); }},
      {"GPT|TransformerAttention", [&](int64_t n) { GPT(small().num_kv_heads(given(n))); }},
      {"KVCache", [](int64_t n) { make()->make_cache(n); }},
      {"KVCache", [&](int64_t n) { make()->make_cache(1, given(n)); }},
      {"KVCache", [](int64_t n) { make(endless())->make_cache(1, n); }},
      {"GPT|KVCache", [&](int64_t n) { make(endless().window(given(n)))->make_cache(); }},
      {"generate|KVCache",
       [&](int64_t n) { generate(*make(endless()), {1}, {.max_new_tokens = n == 0 ? -1 : n}); }},
      {"generate|GPT", [](int64_t n) { generate(*make(), {n == 0 ? -1 : n}, {.max_new_tokens = 1}); }}};
  for (const auto& probe : probes) {
    for (const int64_t size : kSizesWithoutMeaning) CHECK_NAMED(probe, size);
  }
}

TEST_CASE("Llama refuses sizes without meaning or memory by name", "[llama][extremes]") {
  const auto given = [](int64_t n) { return n == 0 ? -1 : n; };
  const auto ring = [](int64_t n) { return Llama(llama().context_length(0).windows({n})); };
  const std::vector<Probe<int64_t>> probes = {
      {"Llama", [](int64_t n) { Llama(llama().vocab_size(n)); }},
      {"Llama", [](int64_t n) { Llama(llama().emb_dim(n)); }},
      {"Llama", [](int64_t n) { Llama(llama().num_heads(n)); }},
      {"Llama", [](int64_t n) { Llama(llama().num_layers(n)); }},
      {"Llama|KVCache", [&](int64_t n) { Llama(llama().context_length(given(n)))->make_cache(); }},
      {"Llama|TransformerAttention", [&](int64_t n) { Llama(llama().num_kv_heads(given(n))); }},
      {"Llama|TransformerAttention", [&](int64_t n) { Llama(llama().head_dim(given(n))); }},
      {"Llama|FeedForward", [&](int64_t n) { Llama(llama().hidden_dim(given(n))); }},
      {"Llama|KVCache", [&](int64_t n) { ring(given(n))->make_cache(); }},
      {"KVCache", [](int64_t n) { Llama(llama())->make_cache(n); }},
      {"LlamaBlock", [&](int64_t n) { LlamaBlock(llama(), given(n)); }}};
  for (const auto& probe : probes) {
    for (const int64_t size : kSizesWithoutMeaning) CHECK_NAMED(probe, size);
  }
}

TEST_CASE("ViT refuses sizes without meaning or memory by name", "[vit][extremes]") {
  const std::vector<Probe<int64_t>> probes = {
      {"ViT", [](int64_t n) { ViT(images().image_size(n)); }},
      {"ViT", [](int64_t n) { ViT(images().patch_size(n)); }},
      {"ViT", [](int64_t n) { ViT(images().channels(n)); }},
      {"ViT", [](int64_t n) { ViT(images().num_classes(n == 0 ? -1 : n)); }},
      {"ViT", [](int64_t n) { ViT(images().emb_dim(n)); }},
      {"ViT", [](int64_t n) { ViT(images().num_heads(n)); }},
      {"ViT", [](int64_t n) { ViT(images().num_layers(n)); }},
      {"ViTBlock|LayerNorm", [](int64_t n) { ViTBlock(images().emb_dim(n)); }},
      {"FusedSelfAttention", [](int64_t n) { ViTBlock(images().num_heads(n)); }},
      {"image_patches", [](int64_t n) {
         image_patches(at::zeros({1, 1, 4, 4}), n);
       }}};
  for (const auto& probe : probes) {
    for (const int64_t size : kSizesWithoutMeaning) CHECK_NAMED(probe, size);
  }
}

TEST_CASE("Sampling refuses numbers without meaning by name", "[generate][extremes]") {
  constexpr auto kInf = std::numeric_limits<double>::infinity();
  const auto sample = [](SamplingOptions options) {
    generate(*make(), {1}, {.max_new_tokens = 1, .sampling = options});
  };
  for (const double bad : {-1.0, kNaN, kInf, -kInf}) {
    CHECK_NAMED((Probe<double>{"sample_token", [&](double t) { sample({.temperature = t}); }}), bad);
    CHECK_NAMED((Probe<double>{"sample_token", [&](double p) { sample({.top_p = p}); }}), bad);
  }
  CHECK_NAMED((Probe<int64_t>{"sample_token", [&](int64_t k) { sample({.top_k = k}); }}), int64_t{-1});
  CHECK_NAMED((Probe<int64_t>{"sample_token", [&](int64_t k) { sample({.top_k = k}); }}),
              std::numeric_limits<int64_t>::min());
  const Probe<at::Tensor> draw{"sample_token", [](const at::Tensor& logits) {
                                 sample_token(logits, {}, at::detail::createCPUGenerator(1));
                               }};
  for (const auto& logits : std::vector<at::Tensor>{{},
                                                    at::zeros({0}),
                                                    at::zeros({}),
                                                    at::zeros({2, 2}),
                                                    at::zeros({2}, at::kLong),
                                                    at::full({3}, kNaN),
                                                    at::full({3}, kInf),
                                                    at::full({3}, -kInf),
                                                    at::zeros({3}, at::kMeta),
                                                    at::zeros({3}).to_sparse(),
                                                    at::zeros({3}, at::kComplexFloat)}) {
    CHECK_NAMED(draw, logits);
  }
}

TEST_CASE("Models refuse tensors that they cannot read by name", "[extremes]") {
  const auto ids = at::zeros({1, 3}, at::kLong);
  const std::vector<at::Tensor> strange = {
      {},
      at::zeros({}, at::kLong),
      at::zeros({3}, at::kLong),
      at::zeros({1, 1, 1, 1, 1}, at::kLong),
      ids.to(at::kFloat),
      ids.to(at::kBool),
      ids.to_sparse(),
      at::_nested_tensor_from_tensor_list({at::zeros({3}), at::zeros({2})})};
  const std::vector<Probe<at::Tensor>> probes = {{"GPT", [](auto& t) { make()->forward(t); }},
                                                 {"GPT", [](auto& t) { make()->loss(t, t); }},
                                                 {"GPT", [&](auto& t) { make()->loss(ids, t); }},
                                                 {"GPT",
                                                  [](auto& t) {
                                                    auto model = make();
                                                    model->forward_cached(t, *model->make_cache());
                                                  }},
                                                 {"Llama", [](auto& t) { Llama(llama())->forward(t); }},
                                                 {"Llama", [](auto& t) { Llama(llama())->loss(t, t); }},
                                                 {"ViT", [](auto& t) { ViT(images())->forward(t); }},
                                                 {"image_patches", [](auto& t) { image_patches(t, 2); }}};
  const at::NoGradGuard no_grad;
  for (const auto& probe : probes) {
    for (const auto& tensor : strange) CHECK_NAMED(probe, tensor);
  }
}
