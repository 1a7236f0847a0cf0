#include <cmath>
#include <map>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include <attentive/models/generate.h>

#include "support/errors.h"

using namespace attentive;
using attentive::test::value_error;
using Catch::Matchers::WithinAbs;

namespace {

std::map<int64_t, double> frequencies(const at::Tensor& logits, const SamplingOptions& options) {
  const auto generator = at::detail::createCPUGenerator(7);
  constexpr int draws = 4000;
  std::map<int64_t, double> seen;
  for (int i = 0; i < draws; ++i) seen[sample_token(logits, options, generator)] += 1.0;
  for (auto& item : seen) item.second /= draws;
  return seen;
}

GPT small(GPTOptions options = GPTOptions(13, 16, 24, 4, 2)) {
  at::manual_seed(3);
  GPT model(options);
  return model;
}

}  // namespace

TEST_CASE("sample_token draws by temperature, top-k and top-p", "[generate]") {
  const auto logits = at::tensor({std::log(0.1), std::log(0.4), std::log(0.2), std::log(0.3)}, at::kDouble);
  CHECK(frequencies(logits, {.temperature = 0}) == std::map<int64_t, double>{{1, 1.0}});
  const auto plain = frequencies(logits, {});
  for (const auto& [id, p] : std::map<int64_t, double>{{0, 0.1}, {1, 0.4}, {2, 0.2}, {3, 0.3}}) {
    CHECK_THAT(plain.at(id), WithinAbs(p, 0.03));
  }
  const auto two = frequencies(logits, {.top_k = 2});
  CHECK(two.size() == 2);
  CHECK_THAT(two.at(1), WithinAbs(4.0 / 7, 0.03));
  // 0.4 alone is less than 0.65; 0.4 and 0.3 reach it.
  const auto nucleus = frequencies(logits, {.top_p = 0.65});
  CHECK(nucleus.size() == 2);
  CHECK_THAT(nucleus.at(3), WithinAbs(3.0 / 7, 0.03));
  CHECK(frequencies(logits, {.top_p = 0.01}).size() == 1);
  // Probabilities to the power 1 / temperature.
  const double sum = 0.01 + 0.16 + 0.04 + 0.09;
  CHECK_THAT(frequencies(logits, {.temperature = 0.5}).at(1), WithinAbs(0.16 / sum, 0.03));
  CHECK(frequencies(at::tensor({0.0, -INFINITY}), {}).size() == 1);
  CHECK(frequencies(at::tensor({1.0, 1.0, 1.0}), {.temperature = 0}).at(0) == 1.0);  // ties: the smallest id
}

TEST_CASE("sample_token refuses what has no distribution, by name", "[generate]") {
  const auto refused = [](const at::Tensor& logits, SamplingOptions options = {}) {
    return value_error([&] { return sample_token(logits, options, at::detail::createCPUGenerator(1)); });
  };
  const auto good = at::tensor({1.0, 2.0});
  CHECK(refused(good, {.temperature = -1}) == "sample_token: expected temperature >= 0, got -1");
  CHECK(refused(good, {.temperature = NAN}) == "sample_token: expected temperature >= 0, got nan");
  CHECK(refused(good, {.top_k = -1}) == "sample_token: expected top_k >= 0, got -1");
  CHECK(refused(good, {.top_p = 0}) == "sample_token: expected top_p in (0, 1], got 0");
  CHECK(refused(at::tensor({1.0, NAN})) == "sample_token: expected logits without NaN");
  CHECK(refused(at::full({2}, -INFINITY)) == "sample_token: expected logits with a finite maximum, got -inf");
  CHECK(refused(good.unsqueeze(0)) == "sample_token: expected logits of shape (vocab_size,), got (1, 2)");
}

TEST_CASE("generate gives the same tokens with and without the cache", "[generate]") {
  const auto turned = GPTOptions(13, 0, 24, 4, 2).positions(GPTPositions::Rotary);
  for (const auto& options : {GPTOptions(13, 16, 24, 4, 2), turned, GPTOptions(turned).window(6)}) {
    auto model = small(options);
    GenerateOptions cached{
        .max_new_tokens = 40, .sampling = {.temperature = 0.9, .top_k = 8}, .seed = 5, .slide = true};
    auto plain = cached;
    plain.use_cache = false;
    const auto ids = generate(*model, {1, 2, 3, 4, 5, 6, 7, 8}, cached);
    CHECK(ids.size() == 40);
    CHECK(ids == generate(*model, {1, 2, 3, 4, 5, 6, 7, 8}, plain));
    CHECK(ids == generate(*model, {1, 2, 3, 4, 5, 6, 7, 8}, cached));
    cached.seed = 6;
    CHECK(ids != generate(*model, {1, 2, 3, 4, 5, 6, 7, 8}, cached));
    CHECK(model->is_training());
  }
}

TEST_CASE("generate stops at the context, slides if asked to, and streams", "[generate]") {
  auto model = small();
  const std::vector<int64_t> prompt{1, 2, 3};
  // 16 tokens of context, 3 of them the prompt: 13 fit, and the model still sees all 16 for one more.
  CHECK(generate(*model, prompt, {.max_new_tokens = 50}).size() == 14);
  CHECK(generate(*model, prompt, {.max_new_tokens = 50, .slide = true}).size() == 50);
  std::vector<int64_t> streamed;
  const auto ids =
      generate(*model, prompt, {.max_new_tokens = 50, .slide = true, .on_token = [&](int64_t id) {
                                  streamed.push_back(id);
                                  return streamed.size() < 5;
                                }});
  CHECK(ids == streamed);
  CHECK(ids.size() == 5);
  const std::vector<int64_t> longer(20, 1);
  CHECK(generate(*model, longer, {.max_new_tokens = 3, .slide = true}).size() == 3);
  CHECK(value_error([&] { return generate(*model, longer); }) ==
        "generate: expected a prompt of at most context_length = 16 tokens, got 20; slide uses its end");
  CHECK(value_error([&] { return generate(*model, {}); }) ==
        "generate: expected a prompt of at least one token, got an empty one");
  CHECK(value_error([&] { return generate(*model, {13}); }) == "GPT: expected ids in [0, 13), got 13");
  CHECK(value_error([&] { return generate(*model, {1}, {.max_new_tokens = -1}); }) ==
        "generate: expected max_new_tokens >= 0, got -1");
}
