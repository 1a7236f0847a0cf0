#include <ATen/ops/randint.h>
#include <catch2/catch_test_macros.hpp>
#include <torch/nn/modules/container/sequential.h>

#include <attentive/models/any_language_model.h>
#include <attentive/models/gpt.h>
#include <attentive/models/llama.h>

#include "support/compare.h"
#include "support/peak_memory.h"

using namespace attentive;
using namespace attentive::test;

namespace {

constexpr int64_t kWords = 13;

std::vector<AnyLanguageModel> models() {
  at::manual_seed(3);
  const auto rotary = GPTOptions(kWords, 64, 24, 4, 2).positions(GPTPositions::Rotary);
  const auto llama = LlamaOptions(kWords, 24, 4, 3).num_kv_heads(2).context_length(64);
  return {GPT(GPTOptions(kWords, 64, 24, 4, 2).tied(true)), GPT(GPTOptions(rotary).window(6)), Llama(llama),
          Llama(LlamaOptions(llama).logit_softcap(2.0).tied(true).windows({5, 0, 5}))};
}

at::Tensor last_of(const at::Tensor& logits) {
  return logits.narrow(1, logits.size(1) - 1, 1);
}

}  // namespace

TEST_CASE("Logits says its name", "[logits]") {
  CHECK(to_string(Logits::All) == "all");
  CHECK(to_string(Logits::Last) == "last");
}

TEST_CASE("the logits of the last token are those of all tokens", "[logits]") {
  for (const auto& model : models()) {
    for (const int64_t tokens : {1, 2, 16, 17, 40}) {
      CAPTURE(model.name(), tokens);
      const auto ids = at::randint(kWords, {2, tokens}, at::kLong);
      const auto all = last_of(model.forward(ids));
      const auto last = model.forward(ids, Logits::Last);
      CHECK(last.sizes() == at::IntArrayRef({2, 1, kWords}));
      CHECK_WITHIN(last, all, {1e-5, 2e-6});
      if (tokens == 1) CHECK(bit_equal(last, all));
      const at::NoGradGuard no_grad;
      const auto cache = model.make_cache(2, 41), other = model.make_cache(2, 41);
      CHECK_WITHIN(model.forward_cached(ids, *cache, Logits::Last), all, {1e-5, 2e-6});
      model.forward_cached(ids, *other);
      // The cache is not affected: the next token gets the same result.
      const auto next = at::randint(kWords, {2, 1}, at::kLong);
      CHECK(bit_equal(model.forward_cached(next, *cache), model.forward_cached(next, *other)));
    }
  }
}

TEST_CASE("the gradients of the last token's logits are those of the same row", "[logits]") {
  for (const auto& model : models()) {
    CAPTURE(model.name());
    const auto ids = at::randint(kWords, {2, 20}, at::kLong);
    const auto gradients = [&](const at::Tensor& logits) {
      model.module().zero_grad();
      logits.square().sum().backward();
      std::vector<at::Tensor> all;
      for (const auto& parameter : model.module().parameters()) all.push_back(parameter.grad().clone());
      return all;
    };
    const auto want = gradients(last_of(model.forward(ids))),
               got = gradients(model.forward(ids, Logits::Last));
    for (size_t i = 0; i < want.size(); ++i) CHECK_WITHIN(got[i], want[i], {1e-5, 5e-6});
  }
}

TEST_CASE("a language model stands in a Sequential of one argument", "[logits]") {
  const auto ids = at::randint(kWords, {2, 5}, at::kLong);
  for (const auto& model : models()) {
    CAPTURE(model.name());
    model.visit([&](const auto& holder) {
      CHECK(bit_equal(torch::nn::Sequential(holder)->forward(ids), model.forward(ids)));
    });
  }
}
