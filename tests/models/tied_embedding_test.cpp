#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <torch/csrc/autograd/autograd.h>
#include <torch/utils.h>

#include <attentive/models/gpt.h>
#include <attentive/models/llama.h>

#include "functional/linear.h"
#include "support/compare.h"
#include "support/memory_meter.h"

using namespace attentive;
using namespace attentive::test;
using torch::autograd::grad;

namespace {

constexpr int64_t kVocabulary = 90, kFeatures = 7;

at::Tensor table(at::ScalarType type = at::kFloat) {
  return at::randn({kVocabulary, kFeatures}).to(type).requires_grad_(true);
}

// Tokens of which some occur several times.
at::Tensor repeated_ids() {
  return at::randint(20, {2, 17}, at::kLong);
}

// The weights are used as in a model that has nothing between them.
at::Tensor loss_of_rows(const at::Tensor& rows, const at::Tensor& head) {
  return at::linear(rows.square(), head).square().mean();
}

at::Tensor tied_loss(const at::Tensor& weight, const at::Tensor& ids) {
  const TiedEmbedding weights(weight, weight, ids);
  return loss_of_rows(weights.rows_of(ids), weights.head());
}

at::Tensor plain_loss(const at::Tensor& weight, const at::Tensor& ids) {
  return loss_of_rows(at::embedding(weight, ids), weight);
}

}  // namespace

TEST_CASE("a tied weight's gradient has the bits of autograd's own", "[tied_embedding]") {
  at::manual_seed(1);
  const auto type = GENERATE(at::kFloat, at::kBFloat16, at::kDouble);
  const int before = at::get_num_threads();
  for (const int threads : {1, 3}) {
    at::set_num_threads(threads);
    const auto weight = table(type), ids = repeated_ids();
    const auto loss = tied_loss(weight, ids), plain = plain_loss(weight, ids);
    CHECK(bit_equal(loss, plain));
    const auto got = grad({loss}, {weight}, {}, /*retain_graph=*/true)[0];
    CHECK(got.layout() == at::kStrided);
    CHECK(bit_equal(got, grad({plain}, {weight})[0]));
    CHECK(bit_equal(got, grad({loss}, {weight})[0]));  // again over the retained graph
    // Gradients accumulate into the leaf.
    tied_loss(weight, ids).backward();
    tied_loss(weight, ids).backward();
    CHECK(bit_equal(weight.grad(), got + got));
  }
  at::set_num_threads(before);
}

TEST_CASE("one use of a tied weight alone has a dense gradient", "[tied_embedding]") {
  at::manual_seed(2);
  const auto weight = table(), ids = repeated_ids(), x = at::randn({4, kFeatures});
  const TiedEmbedding weights(weight, weight, ids);
  const auto of_rows = grad({weights.rows_of(ids).square().sum()}, {weight})[0];
  CHECK(of_rows.layout() == at::kStrided);
  CHECK(bit_equal(of_rows, grad({at::embedding(weight, ids).square().sum()}, {weight})[0]));
  const auto of_head = grad({at::linear(x, weights.head()).square().sum()}, {weight})[0];
  CHECK(bit_equal(of_head, grad({at::linear(x, weight).square().sum()}, {weight})[0]));
}

TEST_CASE("a gradient that somebody else holds is not changed", "[tied_embedding]") {
  at::manual_seed(3);
  const auto weight = table(), ids = repeated_ids();
  const TiedEmbedding weights(weight, weight, ids);
  at::Tensor held;
  SECTION("the tensor") {
    weights.head().register_hook([&](const at::Tensor& gradient) { held = gradient; });
  }
  SECTION("its memory") {
    weights.head().register_hook([&](const at::Tensor& gradient) { held = gradient.detach(); });
  }
  const auto loss = loss_of_rows(weights.rows_of(ids), weights.head());
  const auto total = grad({loss}, {weight})[0];
  const auto head = weight.detach().requires_grad_(true);
  CHECK(bit_equal(held, grad({loss_of_rows(at::embedding(weight.detach(), ids), head)}, {head})[0]));
  CHECK_FALSE(bit_equal(held, total));
}

TEST_CASE("a tied weight has second derivatives", "[tied_embedding]") {
  at::manual_seed(4);
  const auto weight = table(at::kDouble), ids = repeated_ids(), along = at::randn_like(weight);
  const auto second = [&](const at::Tensor& loss) {
    const auto first = grad({loss}, {weight}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
    return grad({(first * along).sum()}, {weight})[0];
  };
  CHECK_CLOSE(second(tied_loss(weight, ids)), second(plain_loss(weight, ids)));
}

TEST_CASE("two weights, and more tokens than words, are read as they are", "[tied_embedding]") {
  at::manual_seed(5);
  const auto weight = table(), other = table(), ids = repeated_ids();
  CHECK(TiedEmbedding(weight, other, ids).head().is_same(other));
  const auto every = at::arange(kVocabulary).unsqueeze(0);
  CHECK(TiedEmbedding(weight, weight, every).head().is_same(weight));
  CHECK(TiedEmbedding(weight.detach(), weight.detach(), ids).rows_of(ids).requires_grad() == false);
  const torch::NoGradGuard no_grad;
  CHECK(TiedEmbedding(weight, weight, ids).head().is_same(weight));
}

TEST_CASE("a tied model's gradient is the sum of an untied one's", "[tied_embedding]") {
  const auto check = [](auto options, auto make) {
    auto tied = make(options.tied(true)), untied = make(options.tied(false));
    {
      const torch::NoGradGuard no_grad;
      auto named = untied->named_parameters();
      for (const auto& item : tied->named_parameters()) named[item.key()].copy_(item.value());
      untied->out_head->weight.copy_(tied->tok_emb->weight);
    }
    const auto ids = repeated_ids();
    const auto loss = tied->loss(ids, ids.roll(-1, 1));
    loss.backward();
    CHECK(bit_equal(loss, untied->loss(ids, ids.roll(-1, 1))));
    untied->loss(ids, ids.roll(-1, 1)).backward();
    CHECK(bit_equal(tied->tok_emb->weight.grad(),
                    untied->out_head->weight.grad() + untied->tok_emb->weight.grad()));
  };
  at::manual_seed(6);
  check(GPTOptions(kVocabulary, 17, 8, 2, 1), [](const GPTOptions& options) { return GPT(options); });
  check(LlamaOptions(kVocabulary, 8, 2, 1), [](const LlamaOptions& options) { return Llama(options); });
}

TEST_CASE("a tied model needs memory for one gradient of its table", "[tied_embedding]") {
  at::manual_seed(7);
  constexpr int64_t kMany = 20000, kWide = 64;
  GPT model(GPTOptions(kMany, 8, kWide, 2, 1).tied(true));
  const auto ids = at::randint(kMany, {1, 8}, at::kLong);
  const MemoryMeter meter;
  model->loss(ids, ids.roll(-1, 1)).backward();
  const auto size = static_cast<int64_t>(model->tok_emb->weight.nbytes());
  CHECK(meter.peak() >= size);
  CHECK(meter.peak() < 2 * size - size / 4);  // the logits of 8 tokens are an eighth of it
}
