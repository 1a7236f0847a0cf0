// Associative recall: a sequence names keys, each with a value, then asks for the value of every key. A small
// model of each kind of layer learns it, and its first losses are those of its twin in Python.

#include <cmath>
#include <functional>
#include <memory>
#include <sstream>
#include <string>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/stack.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <attentive/files/safetensors.h>
#include <attentive/files/state_dict.h>
#include <attentive/modules/gated_delta_net.h>
#include <attentive/modules/latent_attention.h>
#include <attentive/modules/norms.h>
#include <attentive/train/adamw.h>

#include "support/files.h"
#include "support/python.h"

using namespace attentive;

namespace {

constexpr int64_t kPairs = 32, kKeys = 64, kValues = 32, kBatch = 32;
constexpr int64_t kWidth = 64, kHeads = 2, kHidden = 128;

using Forward = std::function<at::Tensor(const at::Tensor& x)>;

Forward add_mixer(torch::nn::Module& parent, const std::string& kind) {
  if (kind == "delta") {
    GatedDeltaNet net(GatedDeltaNetOptions(kWidth, kHeads).key_dim(64).value_dim(32));
    const at::NoGradGuard no_grad;
    net->dt_bias.fill_(-6);  // the first weights of transformers forget a pair within a few tokens
    parent.register_module("mixer", net);
    return [net](const at::Tensor& x) mutable { return net->forward(x); };
  }
  LatentAttention attention(LatentAttentionOptions(kWidth, kHeads)
                                .kv_lora_rank(32)
                                .qk_nope_head_dim(32)
                                .qk_rope_head_dim(32)
                                .v_head_dim(32));
  parent.register_module("mixer", attention);
  return [attention](const at::Tensor& x) mutable { return attention->forward(x); };
}

struct Block : torch::nn::Module {
  explicit Block(const std::string& kind) {
    norm1 = register_module("norm1", RMSNorm(kWidth));
    mix = add_mixer(*this, kind);
    norm2 = register_module("norm2", RMSNorm(kWidth));
    using torch::nn::Linear;
    mlp = register_module(
        "mlp", torch::nn::Sequential(Linear(kWidth, kHidden), torch::nn::GELU(), Linear(kHidden, kWidth)));
  }
  at::Tensor forward(const at::Tensor& x) {
    const auto mixed = x + mix(norm1->forward(x));
    return mixed + mlp->forward(norm2->forward(mixed));
  }
  RMSNorm norm1{nullptr}, norm2{nullptr};
  Forward mix;
  torch::nn::Sequential mlp{nullptr};
};

struct Questions {
  at::Tensor tokens, answers;  // (B, 3 pairs): keys and values in turns, then all keys again; (B, pairs)
};

Questions ask(int64_t batch, int64_t pairs) {
  const auto keys = at::rand({batch, kKeys}).argsort(int64_t{1}).narrow(1, 0, pairs);
  const auto values = at::randint(kValues, {batch, pairs}, at::kLong);
  const auto order = at::rand({batch, pairs}).argsort(int64_t{1});
  return {at::cat({at::stack({keys, values + kKeys}, 2).flatten(1), keys.gather(1, order)}, 1),
          values.gather(1, order)};
}

// Batches of 4, 8, 16 and 32 pairs in turns: few pairs show sooner what there is to learn.
Questions lesson(int64_t step) {
  return ask(kBatch, kPairs >> (3 - step % 4));
}

struct Recall : torch::nn::Module {
  explicit Recall(const std::string& kind) {
    embedding = register_module("embedding", torch::nn::Embedding(kKeys + kValues, kWidth));
    first = register_module("first", std::make_shared<Block>(kind));
    second = register_module("second", std::make_shared<Block>(kind));
    norm = register_module("norm", RMSNorm(kWidth));
    head = register_module("head", torch::nn::Linear(kWidth, kValues));
  }
  // The logits (B, pairs, kValues) of the answers.
  at::Tensor forward(const Questions& questions) {
    const auto x = second->forward(first->forward(embedding->forward(questions.tokens)));
    const auto pairs = questions.answers.size(1);
    return head->forward(norm->forward(x.narrow(1, 2 * pairs, pairs)));
  }
  // One step of training; the loss before it.
  double learn(const Questions& questions, AdamW& optimizer) {
    const auto loss = at::cross_entropy_loss(forward(questions).flatten(0, 1), questions.answers.flatten());
    loss.backward();
    optimizer.clip(1.0);
    optimizer.step();
    optimizer.zero_grad();
    return loss.item<double>();
  }
  torch::nn::Embedding embedding{nullptr};
  std::shared_ptr<Block> first, second;
  RMSNorm norm{nullptr};
  torch::nn::Linear head{nullptr};
};

AdamW optimizer_of(const Recall& model, const std::string& kind) {
  return AdamW(model, {.learning_rate = kind == "delta" ? 5e-3 : 3e-3, .weight_decay = 0});
}

double share_of_right_answers(Recall& model) {
  const at::NoGradGuard no_grad;
  const auto unseen = ask(100, kPairs);
  const auto said = model.forward(unseen).argmax(-1);
  return said.eq(unseen.answers).to(at::kDouble).mean().item<double>();
}

}  // namespace

TEST_CASE("a small model of each kind learns associative recall of 32 pairs", "[recall]") {
  const std::string kind = GENERATE("delta", "latent");
  const int seed = GENERATE(1, 2, 3);
  at::manual_seed(seed);
  Recall model(kind);
  auto optimizer = optimizer_of(model, kind);
  for (int64_t step = 0; step < (kind == "delta" ? 700 : 400); ++step) model.learn(lesson(step), optimizer);
  INFO(kind << ", seed " << seed);
  CHECK(share_of_right_answers(model) >= 0.95);
}

TEST_CASE("the first losses of associative recall are those of transformers' layers", "[recall][python]") {
  NEEDS_PYTHON("transformers");
  const std::string kind = GENERATE("delta", "latent");
  at::manual_seed(1);
  Recall model(kind);
  auto optimizer = optimizer_of(model, kind);
  SafetensorsFile file;
  file.metadata = {{"kind", kind}, {"learning_rate", std::to_string(optimizer.options.learning_rate)}};
  for (const auto& [name, tensor] : state_dict(model)) file.tensors["model." + name] = tensor.clone();
  std::vector<double> losses;
  for (int64_t step = 0; step < 50; ++step) {
    const auto questions = lesson(step);
    file.tensors["tokens." + std::to_string(step)] = questions.tokens;
    file.tensors["answers." + std::to_string(step)] = questions.answers;
    losses.push_back(model.learn(questions, optimizer));
  }
  const TemporaryFolder folder;
  save_safetensors(folder / "recall.safetensors", file.tensors, file.metadata);
  std::istringstream printed(
      test::run_python("tests/train/recall_twin.py", "'" + (folder / "recall.safetensors").string() + "'"));
  for (size_t step = 0; step < losses.size(); ++step) {
    INFO(kind << ", step " << step);
    double twin = NAN;
    printed >> twin;
    CHECK(std::abs(losses[step] - twin) <= 1e-3);
  }
  CHECK(losses.back() < losses.front());
}
