// A user's program that trains a GPT on its text, stops, resumes, and generates.

#include <cstdio>
#include <cstdlib>
#include <string>

#include <ATen/ops/equal.h>

#include <attentive/models/generate.h>
#include <attentive/text/tokenizer.h>
#include <attentive/train/checkpoint.h>
#include <attentive/train/language_model.h>
#include <attentive/train/trainer.h>

namespace {

std::string text() {
  std::string all;
  for (int i = 0; i < 300; ++i) all += "the cat sat on mat " + std::to_string(i % 7) + ". ";
  return all;
}

// Trains up to `steps` in a folder, from its latest checkpoint if it has one.
attentive::Checkpoint train(const std::string& folder_path, int64_t steps) {
  const auto tokenizer = attentive::CharTokenizer::train(text());
  const auto tokens = attentive::tokenize(text(), tokenizer);
  const auto options = attentive::GPTOptions(tokenizer.vocab_size(), 16, 32, 2, 2).dropout(0.1).tied(true);
  attentive::TrainerOptions training;
  training.steps = steps;
  training.decay_steps = 30;
  training.block = 16;
  training.warmup = 5;

  attentive::GPT model(options);
  attentive::Trainer trainer(model.ptr(), attentive::language_model_loss(model), tokens.training,
                             tokens.validation, training);
  attentive::CheckpointFolder folder(folder_path);
  if (!attentive::list_checkpoints(folder_path).empty())
    trainer.restore(attentive::load_checkpoint(folder_path));
  attentive::Trainer::RunOptions run;
  run.documents = attentive::language_model_documents(model, tokenizer);
  trainer.run(folder, run);
  return attentive::load_checkpoint(folder_path);
}

}  // namespace

int main() {
  char name[] = "/tmp/attentive-consumer-XXXXXX";
  if (mkdtemp(name) == nullptr) return 1;
  const std::string base = name;
  at::manual_seed(1);
  const auto whole = train(base + "/whole", 30);
  at::manual_seed(1);
  train(base + "/parts", 12);
  at::manual_seed(99);  // the checkpoint's generator state takes precedence
  const auto resumed = train(base + "/parts", 30);
  for (const auto& [key, tensor] : whole.model) {
    if (!at::equal(tensor, resumed.model.at(key))) {
      std::printf("%s differs after a resume\n", key.c_str());
      return 1;
    }
  }
  auto language = attentive::load_language_model(base + "/parts");
  const auto ids =
      attentive::generate(language.model, language.tokenizer->encode("the "), {.max_new_tokens = 10});
  std::printf("resumed bit for bit; the %s\n", language.tokenizer->decode(ids).c_str());
  return std::system(("rm -r " + base).c_str());
}
