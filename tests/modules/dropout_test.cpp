// Tests the statistics of dropout in every class that has it, on every device and for every stream.

#include <cmath>
#include <cstring>
#include <functional>
#include <optional>
#include <vector>

#include <ATen/ops/one_hot.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <catch2/catch_test_macros.hpp>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>

#include <attentive/core/options.h>
#include <attentive/modules/multi_head_attention.h>
#include <attentive/notebooks/chapter_3.h>
#include <attentive/notebooks/toy_notebook.h>
#include <attentive/notebooks/vision_transformer.h>

#include "kernels/dropout_counter.h"
#include "modules/golden_check.h"
#include "support/autocast.h"
#include "support/compare.h"

using namespace attentive;
using namespace attentive::test;

namespace {

constexpr double kP = 0.3;

struct Dropper {
  const char* name;
  std::shared_ptr<torch::nn::Module> module;
  std::function<at::Tensor(const at::Tensor& x, Weights)> weights;
};

template <class Holder>
Dropper dropper_of(const char* name, Holder module) {
  return {name, module.ptr(), [module](const at::Tensor& x, Weights which) mutable {
            return module->forward_with_weights(x, Mask(), which).second;
          }};
}

std::vector<Dropper> droppers() {
  auto cross = CrossAttention(8, 8, 8, kP, 2);
  auto sdpa = ScaledDotProductAttention(kP);
  return {dropper_of("CausalAttention", CausalAttention(8, 8, 0, kP)),
          dropper_of("MultiHeadAttentionWrapper", MultiHeadAttentionWrapper(8, 8, 0, kP, 2)),
          dropper_of("MultiHeadAttention", MultiHeadAttention(8, 8, 0, kP, 2)),
          dropper_of("MultiHeadSelfAttention", MultiHeadSelfAttention(8, 2, kP)),
          dropper_of("FusedSelfAttention", FusedSelfAttention(FusedSelfAttentionOptions(8, 2).dropout(kP))),
          {"CrossAttention", cross.ptr(),
           [cross](const at::Tensor& x, Weights which) mutable {
             return cross->forward_with_weights(x, x, Mask(), which).second;
           }},
          {"ScaledDotProductAttention", sdpa.ptr(), [sdpa](const at::Tensor& x, Weights which) mutable {
             return sdpa->forward_with_weights(x, x, x, Mask(), which).second;
           }}};
}

void check_statistics(const at::Device& device) {
  at::manual_seed(5);
  const auto x = at::randn({8, 40, 8}).to(device);
  for (auto& dropper : droppers()) {
    for (const auto stream : {DropoutStream::Any, DropoutStream::Aten, DropoutStream::Counter}) {
      INFO(dropper.name << ", stream " << to_string(stream) << " on " << device);
      const DropoutStreamGuard guard(stream);
      dropper.module->to(device);
      dropper.module->train();
      const auto dropped = dropper.weights(x, Weights::Dropped).detach();
      dropper.module->eval();
      const auto clean = dropper.weights(x, Weights::Dropped).detach();
      CHECK(bit_equal(clean, dropper.weights(x, Weights::Clean).detach()));
      const auto survivors = dropped.ne(0);
      // Survivors are scaled. Their number is binomial and must be within five standard deviations of its
      // mean.
      const double kept = stream == DropoutStream::Aten ? 1 - kP : kernels::keep_threshold(kP) / 65536.0;
      CHECK_WITHIN(dropped * kept, clean * survivors, {1e-6, 0.0});
      const double count = clean.ne(0).sum().item<double>();
      const double share = survivors.sum().item<double>() / count;
      CHECK(std::abs(share - (1 - kP)) < 5 * std::sqrt(kP * (1 - kP) / count));
    }
  }
}

}  // namespace

TEST_CASE("Dropout drops its share of the weights and scales the rest", "[dropout]") {
  check_statistics(at::kCPU);
}

TEST_CASE("Dropout drops its share of the weights on CUDA", "[dropout][cuda]") {
  check_statistics(cuda_or_skip());
}

TEST_CASE("Dropout 0 and evaluation draw nothing, dropout 1 leaves nothing", "[dropout]") {
  const auto x = at::randn({2, 5, 8});
  const auto next_after = [&](double p, bool train) {
    MultiHeadSelfAttention module(8, 2, p);
    module->train(train);
    at::manual_seed(6);
    module->forward(x);
    return at::randn({4});
  };
  at::manual_seed(6);
  const auto undisturbed = at::randn({4});
  CHECK(bit_equal(next_after(0.0, true), undisturbed));
  CHECK(bit_equal(next_after(0.5, false), undisturbed));
  CHECK(bit_equal(next_after(1.0, true), undisturbed));
  CHECK_FALSE(bit_equal(next_after(0.5, true), undisturbed));
  MultiHeadSelfAttention all(8, 2, 1.0);
  const auto [y, weights] = all->forward(x);
  CHECK(y.eq(0).all().item<bool>());
  CHECK(weights.eq(0).all().item<bool>());
}

TEST_CASE("Inverted dropout keeps the mean", "[dropout]") {
  // The notebook's example: 2, 3, 5 and 7, of which 3 and 7 are dropped with p = 0.5.
  const auto values = table({{2, 3, 5, 7}});
  const auto keep = table({{1, 0, 1, 0}});
  CHECK(values.mean().item<float>() == 4.25f);
  CHECK((values * keep).mean().item<float>() == 1.75f);
  CHECK((values * keep / (1 - 0.5)).mean().item<float>() == 3.5f);
}

// Tests that training works: a task that no model without attention can solve is learned in a few hundred
// steps.

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
