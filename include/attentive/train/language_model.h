#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include <attentive/models/any_language_model.h>
#include <attentive/text/tokenizer.h>
#include <attentive/train/evaluate.h>

namespace attentive {

/// A language model with everything that it needs to read and write text.
struct LanguageModel {
  AnyLanguageModel model;
  /// Null if the model came from a Python folder without a tokenizer that could be read.
  std::unique_ptr<Tokenizer> tokenizer = nullptr;
  std::string why_no_tokenizer = {};
  std::vector<int64_t> stop_tokens = {};  ///< tokens that end a text
  /// Of the Python folder that the model came from, if it came from one: its side files (`read_side_files`).
  std::map<std::string, std::string> python_files = {};
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

/// Builds the model that "model.json" describes, with weights that are loaded next: they have no values yet.
/// Throws what the functions above and the model's constructor throw.
AnyLanguageModel parse_language_model(const std::string& json);

/// The documents that make a checkpoint a language model: "model.json", "tokenizer.json"; for a model that
/// came from a Python folder also "stop_tokens.json" and the side files, each under its name behind
/// "python-". Throws c10::ValueError without a tokenizer.
///
///   trainer.run(folder, {.documents = attentive::language_model_documents(model, tokenizer)});
std::map<std::string, std::string> language_model_documents(const LanguageModel& language);
std::map<std::string, std::string> language_model_documents(const AnyLanguageModel& model,
                                                            const Tokenizer& tokenizer);

/// Makes a tokenizer of the text of a `tokenizer.json`; throws c10::ValueError for one that it cannot read.
using TokenizerReader = std::function<std::unique_ptr<Tokenizer>(std::string_view json)>;

/// Makes one of the other files of a Python folder, where it has no `tokenizer.json`; throws c10::ValueError for
/// files that it cannot read.
using FolderTokenizerReader = std::function<std::unique_ptr<Tokenizer>(const std::filesystem::path& folder)>;

struct LanguageModelOptions {
  at::Device device = at::kCPU;
  /// `parse_tokenizer` reads the tokenizers of this package; `parse_any_tokenizer` of the component
  /// attentive::tokenizers reads those of Python's models, too.
  TokenizerReader read_tokenizer = parse_tokenizer;
  /// `load_any_tokenizer` of that component reads the vocabularies of Python's folders. Empty: they stay unread.
  FolderTokenizerReader read_folder_tokenizer = {};
  PretrainedOptions pretrained = {};  ///< for a Python folder
};

/// Reads a language model from a checkpoint, from a folder of checkpoints, or from a folder that Python's
/// `transformers` wrote (one with config.json). The model is in evaluation mode.
///
/// Throws CheckpointError for a damaged checkpoint, what `AnyLanguageModel::load_pretrained` throws for a
/// Python folder, and c10::ValueError for a checkpoint that is not a language model or whose parts do not fit
/// together.
///
///   auto language = attentive::load_language_model("run");
///   auto ids = attentive::generate(language.model, language.tokenizer->encode("Once"));
LanguageModel load_language_model(const std::filesystem::path& path,
                                  const LanguageModelOptions& options = {});

/// Reads it from the documents of a checkpoint, on the CPU and with weights that are loaded next
/// (`parse_language_model`). Throws c10::ValueError as `load_language_model` does.
LanguageModel parse_language_documents(const std::map<std::string, std::string>& documents,
                                       const TokenizerReader& read_tokenizer = parse_tokenizer);

/// Writes a folder that Python's `AutoModelForCausalLM` and `AutoTokenizer` load (`save_model_folder`), with
/// the side files that the model came with. The tokenizer is written as a `tokenizer.json`
/// (`Tokenizer::to_python_json`), also where those files had none. `family` as in `SaveFolderOptions`.
///
/// Throws c10::ValueError, with nothing changed, for a model or a tokenizer that Python cannot have.
///
///   attentive::save_language_model("for_python", attentive::load_language_model("run"));
void save_language_model(const std::filesystem::path& path, const LanguageModel& language,
                         const std::string& family = {});

/// The loss of a language model in the form that `Trainer` takes; it shares the model.
BatchLoss language_model_loss(const AnyLanguageModel& model);

/// A text as tokens: int32 tensors of the first part, for training, and of the rest, for validation.
struct TokenizedText {
  at::Tensor training;
  at::Tensor validation;
};

/// Throws c10::ValueError unless 0 < training_share <= 1, and whatever the tokenizer throws. The whole text
/// becomes tokens, whatever length a `tokenizer.json` asks for, and no special tokens are added.
///
///   auto [training, validation] = attentive::tokenize(text, tokenizer);  // first 90 %, last 10 %
TokenizedText tokenize(std::string_view text, const Tokenizer& tokenizer, double training_share = 0.9);

/// The bytes of a file. Throws c10::ValueError with the path and the reason if it cannot be read or is empty.
std::string read_text(const std::filesystem::path& path);

}  // namespace attentive
