// Training with adapters: what an optimizer changes, and what a checkpoint keeps.

#include <string>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/randn.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <attentive/files/state_dict.h>
#include <attentive/functional/linear_cross_entropy.h>
#include <attentive/text/tokenizer.h>
#include <attentive/train/adamw.h>
#include <attentive/train/language_model.h>
#include <attentive/train/trainer.h>

#include "functional/linear.h"
#include "support/errors.h"
#include "support/files.h"
#include "support/thread_group.h"
#include "train/train_support.h"

using namespace attentive;
using attentive::test::value_error;

namespace {

const std::string kLoraText = "the cat sat on the mat, the dog sat on the log, the end";

// A model of seeded weights with adapters, whose checkpoints are those of a language model.
LanguageModel adapted() {
  auto tokenizer = CharTokenizer::train(kLoraText);
  at::manual_seed(3);
  GPT model(GPTOptions(tokenizer.vocab_size(), 8, 12, 3, 1).qkv_bias(true).dropout(0.1));
  LanguageModel language{.model = model, .tokenizer = std::make_unique<CharTokenizer>(std::move(tokenizer))};
  language.lora = Lora({.rank = 2, .alpha = 6, .dropout = 0.2, .targets = {"c_attn", "c_fc"}}).attach(model);
  return language;
}

TrainerOptions options(int64_t steps) {
  return {.steps = steps, .block = 8, .batch = 2, .learning_rate = 0.05, .warmup = 0, .decay_steps = 4};
}

StateDict copy_of(const torch::nn::Module& model) {
  StateDict copy;
  for (const auto& [name, tensor] : state_dict(model)) copy[name] = tensor.clone();
  return copy;
}

// Trains until `steps`, from the folder's checkpoint if there is one; the trained model.
LanguageModel train_adapted(const std::filesystem::path& path, int64_t steps) {
  CheckpointFolder folder(path);
  const bool resumes = !list_checkpoints(path).empty();
  const auto checkpoint = resumes ? load_checkpoint(path) : Checkpoint();
  auto language = resumes ? parse_language_documents(checkpoint.documents) : adapted();
  const auto tokens = tokenize(kLoraText, *language.tokenizer, 1.0);
  Trainer trainer(language.model.ptr(), language_model_loss(language.model), tokens.training, {},
                  options(steps));
  if (resumes) trainer.restore(checkpoint);
  CHECK(trainer.run(folder, {.documents = language_model_documents(language)}));
  return language;
}

}  // namespace

TEST_CASE("Lora: an update changes the adapters alone", "[lora]") {
  auto language = adapted();
  auto& module = language.model.module();
  const auto before = copy_of(module);
  AdamW optimizer(module, {.learning_rate = 0.1, .weight_decay = 0.5});
  const auto ids = at::arange(8).unsqueeze(0);
  for (int step = 0; step < 2; ++step) {  // A has a gradient once B is not zero
    optimizer.zero_grad();
    language.model.loss(ids, ids.flip(1)).backward();
    optimizer.step();
  }
  size_t changed = 0;
  for (const auto& [name, tensor] : state_dict(module)) {
    INFO(name);
    const bool adapter = name.find(".lora.") != std::string::npos;
    CHECK(tensor.equal(before.at(name)) == !adapter);
    changed += adapter ? 1 : 0;
  }
  CHECK(changed == 4);
  CHECK(optimizer.state(true).size() == 9);  // two moments of each, and the step
}

TEST_CASE("Lora: a resumed run has the bits of one that never stopped", "[lora]") {
  const TemporaryFolder root;
  const auto whole = train_adapted(root / "whole", 4);
  (void)train_adapted(root / "parts", 2);
  const auto parts = train_adapted(root / "parts", 4);
  REQUIRE(parts.lora);
  CHECK(parts.lora->options().alpha == 6);
  CHECK(parts.lora->options().dropout == 0.2);
  CHECK(parts.lora->layers() == whole.lora->layers());
  const auto want = state_dict(whole.model.module()), got = state_dict(parts.model.module());
  REQUIRE(got.size() == want.size());
  for (const auto& [name, tensor] : want) CHECK(got.at(name).equal(tensor));
}

TEST_CASE("Lora: a language model comes back with its adapters, and is saved without", "[lora]") {
  const TemporaryFolder root;
  auto trained = train_adapted(root / "run", 2);
  trained.model.module().eval();
  auto language = load_language_model(root / "run");
  const auto ids = at::arange(8).unsqueeze(0);
  const auto logits = trained.model.forward(ids).detach();
  CHECK(language.model.forward(ids).detach().equal(logits));
  CHECK(value_error([&] {
          save_language_model(root / "python", language);
        }).find("save_model_folder: expected a module without adapters") == 0);
  language.lora->merge();
  language.lora->detach();
  save_language_model(root / "python", language);
  const auto merged = load_language_model(root / "python");
  CHECK(merged.model.forward(ids).allclose(logits, 1e-4, 1e-5));
  auto documents = load_checkpoint_documents(root / "run");
  documents["lora.json"] = "{}";
  CHECK(value_error([&] { parse_language_documents(documents); }) ==
        "parse_lora_config: field \"peft_type\": expected \"LORA\", got none");
}

// A trainer whose loss is computed in chunks over a tied table. Groups of processes are simulated by threads.

using attentive::test::equally_trained;
using attentive::test::run_threads;

namespace {

constexpr int64_t kWords = 400;  // more than a batch has tokens, so that the table is split into two uses

struct Tied : torch::nn::Module {
  explicit Tied(at::ScalarType type) {
    auto own = at::detail::createCPUGenerator(3);  // threads share the default one
    table = register_parameter("table", at::randn({kWords, 16}, own).mul_(0.2).to(type));
  }
  at::Tensor loss(const at::Tensor& x, const at::Tensor& y) {
    const TiedEmbedding weights(table, table, x);
    return linear_cross_entropy(weights.rows_of(x).sin(), weights.head(), y, {.label_smoothing = 0.1});
  }
  at::Tensor table;
};

// Batches of 320 tokens, which are two chunks.
TrainerOptions two_chunks() {
  auto options = test::small();
  options.block = 80;
  options.accumulate = 2;
  return options;
}

// The state after eight steps, of which those before `resumed_at` were done by another trainer.
Checkpoint trained_model(at::ScalarType type, const std::shared_ptr<TrainingGroup>& group,
                         int64_t resumed_at = 0) {
  Checkpoint state;
  for (const int64_t until : {resumed_at, int64_t{8}}) {
    const auto model = std::make_shared<Tied>(type);
    const BatchLoss loss = [model](const at::Tensor& x, const at::Tensor& y) { return model->loss(x, y); };
    Trainer trainer(model, loss, test::squares(200), test::squares(100), two_chunks(), group);
    if (state.step > 0) trainer.restore(state);
    while (trainer.steps_done() < until) trainer.step();
    state = test::copy_of(trainer.checkpoint());
  }
  return state;
}

}  // namespace

TEST_CASE("Two processes with a loss in chunks over a tied table train as one does, and as one that goes on",
          "[training_group]") {
  const auto type = GENERATE(at::kFloat, at::kBFloat16);
  const auto one = trained_model(type, nullptr);
  CHECK_FALSE(test::equal_tensors(one.model, {{"table", std::make_shared<Tied>(type)->table}}));
  CHECK(test::equal(trained_model(type, nullptr, 3), one));
  std::vector<Checkpoint> states(2);
  const auto errors = run_threads(2, [&](const std::shared_ptr<TrainingGroup>& group) {
    states[static_cast<size_t>(group->rank())] = trained_model(type, group, 5);
  });
  CHECK(errors == std::vector<std::string>{"no error", "no error"});
  for (const auto& state : states) CHECK(equally_trained(state, one));
}
