#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>

#include <attentive/models/gpt.h>
#include <attentive/models/llama.h>
#include <attentive/text/tokenizer.h>
#include <attentive/train/evaluate.h>

namespace attentive {

/// A GPT together with the tokenizer that it was trained with.
struct LanguageModel {
  GPT model{nullptr};
  std::unique_ptr<Tokenizer> tokenizer = nullptr;
  int64_t step = 0;  ///< number of updates done
};

/// The options of a GPT as JSON, stored in a checkpoint as "model.json".
std::string to_json(const GPTOptions& options);
/// Reads them back. Throws c10::ValueError naming a member that is missing or has another type. Members that
/// earlier versions did not know may be missing and then have their defaults.
GPTOptions parse_gpt_options(const std::string& json);

/// The same for a `Llama`. The JSON object has a member "model" with the value "Llama", which that of a GPT
/// has not.
std::string to_json(const LlamaOptions& options);
LlamaOptions parse_llama_options(const std::string& json);

/// The documents that make a checkpoint a language model: "model.json" and "tokenizer.json".
///
///   trainer.run(folder, {.documents = attentive::language_model_documents(options, *tokenizer)});
std::map<std::string, std::string> language_model_documents(const GPTOptions& options,
                                                            const Tokenizer& tokenizer);

/// Reads the model and the tokenizer from a checkpoint, or from a folder of checkpoints. Throws
/// CheckpointError for a damaged checkpoint, and c10::ValueError for one that is not a language model or
/// whose parts do not fit together.
///
///   auto [model, tokenizer, step] = attentive::load_language_model("run");
LanguageModel load_language_model(const std::filesystem::path& path, at::Device device = at::kCPU);

/// The loss of a GPT in the form that `Trainer` takes; it shares the model.
BatchLoss gpt_loss(const GPT& model);

/// A text as tokens: int32 tensors of the first part, for training, and of the rest, for validation.
struct TokenizedText {
  at::Tensor training;
  at::Tensor validation;
};

/// Throws c10::ValueError unless 0 < training_share <= 1, and whatever the tokenizer throws.
///
///   auto [training, validation] = attentive::tokenize(text, tokenizer);  // first 90 %, last 10 %
TokenizedText tokenize(std::string_view text, const Tokenizer& tokenizer, double training_share = 0.9);

/// The bytes of a file. Throws c10::ValueError with the path and the reason if it cannot be read or is empty.
std::string read_text(const std::filesystem::path& path);

}  // namespace attentive
