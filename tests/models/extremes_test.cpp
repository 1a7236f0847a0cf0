// Models and generation with invalid arguments: the error begins with a public name.

#include "support/extremes.h"

#include <cmath>
#include <limits>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/_nested_tensor_from_tensor_list.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/models/generate.h>
#include <attentive/models/gpt.h>
#include <attentive/models/llama.h>
#include <attentive/models/vit.h>

using namespace attentive;
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
  constexpr auto kNaN = std::numeric_limits<double>::quiet_NaN(),
                 kInf = std::numeric_limits<double>::infinity();
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
