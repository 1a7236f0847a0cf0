#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>

#include <attentive/models/gpt.h>
#include <attentive/text/tokenizer.h>
#include <attentive/train/evaluate.h>

namespace attentive {

/// A GPT together with the tokenizer that it was trained with.
struct LanguageModel {
  GPT model{nullptr};
  std::unique_ptr<Tokenizer> tokenizer = nullptr;
  int64_t step = 0;  ///< updates behind it
};

/// The options of a GPT as JSON: what a checkpoint keeps as "model.json".
std::string to_json(const GPTOptions& options);
/// Reads them back. Throws c10::ValueError that names a member which is missing or has another type.
GPTOptions parse_gpt_options(const std::string& json);

/// The documents that make a checkpoint a language model: "model.json" and "tokenizer.json".
///
///   trainer.run(folder, {.documents = attentive::language_model_documents(options, *tokenizer)});
std::map<std::string, std::string> language_model_documents(const GPTOptions& options,
                                                            const Tokenizer& tokenizer);

/// Reads model and tokenizer from a checkpoint, or from a folder of checkpoints. Throws CheckpointError for a
/// damaged one and c10::ValueError for one that is no language model or whose parts do not fit together.
///
///   auto [model, tokenizer, step] = attentive::load_language_model("run");
LanguageModel load_language_model(const std::filesystem::path& path, at::Device device = at::kCPU);

/// The loss of a GPT as a `Trainer` wants it; it shares the model.
BatchLoss gpt_loss(const GPT& model);

/// A text as tokens: int32 tensors of the first part, for training, and of the rest, for validation.
struct TokenizedText {
  at::Tensor training;
  at::Tensor validation;
};

/// Throws c10::ValueError unless 0 < training_share <= 1, and what the tokenizer throws.
///
///   auto [training, validation] = attentive::tokenize(text, tokenizer);  // first 90 %, last 10 %
TokenizedText tokenize(std::string_view text, const Tokenizer& tokenizer, double training_share = 0.9);

/// A file's bytes. Throws c10::ValueError with the path and the reason if it cannot be read or is empty.
std::string read_text(const std::filesystem::path& path);

}  // namespace attentive
