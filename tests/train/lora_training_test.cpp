// Training with adapters: what an optimizer changes, and what a checkpoint keeps.

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/files/state_dict.h>
#include <attentive/text/tokenizer.h>
#include <attentive/train/adamw.h>
#include <attentive/train/language_model.h>
#include <attentive/train/trainer.h>

#include "support/errors.h"
#include "support/temporary_folder.h"

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
