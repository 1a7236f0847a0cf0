// Tests that training works: a task that no model without attention can solve is learned in a few hundred
// steps.

#include <cmath>
#include <cstring>
#include <optional>
#include <vector>

#include <ATen/ops/one_hot.h>
#include <ATen/ops/randint.h>
#include <catch2/catch_test_macros.hpp>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>

#include <attentive/core/options.h>
#include <attentive/modules/multi_head_attention.h>

#include "modules/golden_check.h"
#include "support/autocast.h"

using namespace attentive;
using namespace attentive::test;

namespace {

constexpr int64_t kLearnedTokens = 8, kWords = 8, kWidth = 32, kBatch = 64;

// Sequences of random words of which one is marked. The expected answer at the last token is the marked word.
struct CopyBatch {
  at::Tensor words, mark, is_marked;

  explicit CopyBatch(const at::Device& device)
      : words(at::randint(kWords, {kBatch, kLearnedTokens}, at::kLong).to(device)),
        mark(at::randint(kLearnedTokens, {kBatch}, at::kLong).to(device)),
        is_marked(at::one_hot(mark, kLearnedTokens)) {}

  at::Tensor answer() const { return words.gather(1, mark.unsqueeze(1)).squeeze(1); }
};

struct CopyModelImpl : torch::nn::Module {
  CopyModelImpl() {
    word = register_module("word", torch::nn::Embedding(kWords, kWidth));
    marker = register_module("marker", torch::nn::Embedding(2, kWidth));
    attention =
        register_module("attention", MultiHeadAttention(kWidth, kWidth, kLearnedTokens, /*dropout=*/0.0, 2));
    head = register_module("head", torch::nn::Linear(kWidth, kWords));
  }
  at::Tensor embed(const CopyBatch& batch) {
    return word->forward(batch.words) + marker->forward(batch.is_marked);
  }
  at::Tensor forward(const CopyBatch& batch) {
    return head->forward(attention->forward(embed(batch)).select(1, kLearnedTokens - 1));
  }

  torch::nn::Embedding word{nullptr}, marker{nullptr};
  MultiHeadAttention attention{nullptr};
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(CopyModel);

struct Lesson {
  std::vector<float> losses;
  double accuracy = 0.0, weight_on_mark = 0.0;
};

// Without a `loss_scale` in float32, else under autocast to float16, with gradients of the loss times the
// scale.
Lesson learn(uint64_t seed, int64_t steps, const at::Device& device, double loss_scale = 0.0) {
  at::manual_seed(seed);
  CopyModel model;
  model->to(device);
  torch::optim::Adam optimizer(model->parameters(), torch::optim::AdamOptions(0.003));
  Lesson lesson;
  for (int64_t step = 0; step < steps; ++step) {
    const CopyBatch batch(device);
    const auto logits = [&] {
      const CpuAutocast autocast(loss_scale != 0.0 ? std::optional(at::kHalf) : std::nullopt);
      return model->forward(batch).to(at::kFloat);
    }();
    const auto loss = torch::nn::functional::cross_entropy(logits, batch.answer());
    optimizer.zero_grad();
    (loss_scale != 0.0 ? loss * loss_scale : loss).backward();
    for (const auto& parameter : model->parameters()) {
      if (loss_scale != 0.0) parameter.mutable_grad().div_(loss_scale);
    }
    optimizer.step();
    lesson.losses.push_back(loss.item<float>());
  }
  model->eval();
  const CopyBatch unseen(device);
  lesson.accuracy =
      model->forward(unseen).argmax(-1).eq(unseen.answer()).to(at::kDouble).mean().item<double>();
  // The weight of the marked token for the last token, in the head in which it is largest.
  const auto weights =
      model->attention->forward_with_weights(model->embed(unseen)).second.select(2, kLearnedTokens - 1);
  lesson.weight_on_mark = (weights * unseen.is_marked.unsqueeze(1)).sum(-1).mean(0).max().item<double>();
  return lesson;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

void check_learned(const Lesson& lesson) {
  CHECK(lesson.losses.front() > 1.5f);
  CHECK(lesson.losses.back() < 0.02f);
  CHECK(lesson.accuracy == 1.0);
  CHECK(lesson.weight_on_mark > 0.8);
}

}  // namespace

TEST_CASE("MultiHeadAttention learns to copy the token at a marked position", "[learning]") {
  for (const auto backend : {Backend::Auto, Backend::Reference}) {
    INFO("backend " << to_string(backend));
    const BackendGuard guard(backend);
    check_learned(learn(1, 300, at::kCPU));
  }
}

TEST_CASE("MultiHeadAttention learns under float16 autocast as in float32", "[learning]") {
  const BackendGuard guard(Backend::Native);
  const auto single = learn(1, 300, at::kCPU), half = learn(1, 300, at::kCPU, /*loss_scale=*/1024.0);
  check_learned(half);
  CHECK_FALSE(same_bits(half.losses, single.losses));
  for (size_t step = 0; step < single.losses.size(); ++step) {
    INFO("step " << step << ": " << half.losses[step] << " in float16, " << single.losses[step]);
    CHECK(std::abs(half.losses[step] - single.losses[step]) < 0.02f);
  }
}

TEST_CASE("MultiHeadAttention learns on CUDA", "[learning][cuda]") {
  check_learned(learn(1, 300, cuda_or_skip()));
}

TEST_CASE("The same seed gives the same loss curve, bit for bit", "[learning]") {
  const auto first = learn(2, 60, at::kCPU), again = learn(2, 60, at::kCPU), other = learn(3, 60, at::kCPU);
  CHECK(same_bits(first.losses, again.losses));
  CHECK_FALSE(same_bits(first.losses, other.losses));
}
