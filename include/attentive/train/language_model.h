#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include <attentive/models/any_language_model.h>
#include <attentive/models/generate.h>
#include <attentive/models/lora.h>
#include <attentive/text/tokenizer.h>
#include <attentive/train/evaluate.h>

namespace attentive {

/// A language model with everything needed to read and write text.
struct LanguageModel {
  AnyLanguageModel model;
  /// Null if the model was loaded from a Python folder without a readable tokenizer.
  std::unique_ptr<Tokenizer> tokenizer = nullptr;
  std::string why_no_tokenizer = {};
  std::vector<int64_t> stop_tokens = {};  ///< tokens that end a text
  /// If the model was loaded from a Python folder, that folder's side files (`read_side_files`).
  std::map<std::string, std::string> python_files = {};
  int64_t step = 0;  ///< number of updates done so far
  /// The adapters with which the model is trained; a checkpoint stores them and their options.
  std::optional<Lora> lora = std::nullopt;
};

/// The options of a GPT as JSON, stored in a checkpoint as "model.json".
std::string to_json(const GPTOptions& options);
/// Parses the options of a GPT. Throws c10::ValueError naming a member that is missing or has another type.
/// Members that earlier versions did not know may be missing; they then have their defaults.
GPTOptions parse_gpt_options(const std::string& json);

/// The options of a `Llama` as JSON. The object has a member "model" with the value "Llama", which the JSON
/// of a GPT lacks.
std::string to_json(const LlamaOptions& options);
LlamaOptions parse_llama_options(const std::string& json);

/// Builds the model that "model.json" describes, with uninitialised weights, which must be loaded next.
/// Throws the errors of the functions above and of the model's constructor.
AnyLanguageModel parse_language_model(const std::string& json);

/// The documents that make a checkpoint a language model: "model.json" and "tokenizer.json"; for a model from
/// a Python folder also "stop_tokens.json" and the side files, whose names get the prefix "python-"; with
/// adapters also "lora.json". Throws c10::ValueError without a tokenizer.
///
///   trainer.run(folder, {.documents = attentive::language_model_documents(model, tokenizer)});
std::map<std::string, std::string> language_model_documents(const LanguageModel& language);
std::map<std::string, std::string> language_model_documents(const AnyLanguageModel& model,
                                                            const Tokenizer& tokenizer);

/// Makes a tokenizer from the text of a `tokenizer.json`; throws c10::ValueError if it cannot read the text.
using TokenizerReader = std::function<std::unique_ptr<Tokenizer>(std::string_view json)>;

/// Makes a tokenizer from the files of a Python folder; throws c10::ValueError for files that it cannot read.
using FolderTokenizerReader = std::function<std::unique_ptr<Tokenizer>(const std::filesystem::path& folder)>;

struct LanguageModelOptions {
  at::Device device = at::kCPU;
  /// `parse_tokenizer` reads this package's tokenizers; `parse_any_tokenizer` of the component
  /// attentive::tokenizers also reads those of Python's models.
  TokenizerReader read_tokenizer = parse_tokenizer;
  /// Reads the tokenizers of Python folders, as their classes read them; `load_any_tokenizer` of
  /// attentive::tokenizers is such a reader. Without one, `read_tokenizer` gets a folder's `tokenizer.json`,
  /// and folders without that file load without a tokenizer.
  FolderTokenizerReader read_folder_tokenizer = {};
  PretrainedOptions pretrained = {};  ///< for Python folders
};

/// Reads a language model from a checkpoint, from a folder of checkpoints, or from a folder that Python's
/// `transformers` wrote (one with config.json). The model is in evaluation mode.
///
/// Throws CheckpointError for a damaged checkpoint, the errors of `AnyLanguageModel::load_pretrained` for a
/// Python folder, and c10::ValueError for a checkpoint that is not a language model or whose parts do not fit
/// together.
///
///   auto language = attentive::load_language_model("run");
///   auto ids = attentive::generate(language.model, language.tokenizer->encode("Once"));
LanguageModel load_language_model(const std::filesystem::path& path,
                                  const LanguageModelOptions& options = {});

/// Builds a language model from the documents of a checkpoint, on the CPU and with uninitialised weights,
/// which must be loaded next (`parse_language_model`). Throws c10::ValueError as `load_language_model` does.
LanguageModel parse_language_documents(const std::map<std::string, std::string>& documents,
                                       const TokenizerReader& read_tokenizer = parse_tokenizer);

/// Writes a folder that Python's `AutoModelForCausalLM` and `AutoTokenizer` load (`save_model_folder`), with
/// the side files that the model came with. The tokenizer is written as a `tokenizer.json`
/// (`Tokenizer::to_python_json`), also if those files had none. family: as in `SaveFolderOptions`. A model
/// with adapters is refused: `Lora::merge()` and `Lora::detach()` make them part of its weights.
///
/// Throws c10::ValueError, with nothing changed, for a model or a tokenizer that Python cannot represent.
///
///   attentive::save_language_model("for_python", attentive::load_language_model("run"));
void save_language_model(const std::filesystem::path& path, const LanguageModel& language,
                         const std::string& family = {});

/// The loss of a language model in the form that `Trainer` accepts; it shares the model.
BatchLoss language_model_loss(const AnyLanguageModel& model);

/// A text as int32 tokens: the first part for training, the rest for validation.
struct TokenizedText {
  at::Tensor training;
  at::Tensor validation;
};

/// Throws c10::ValueError unless 0 < training_share <= 1, and the tokenizer's errors. The whole text is
/// tokenized, even if a `tokenizer.json` requests truncation, and no special tokens are added.
///
///   auto [training, validation] = attentive::tokenize(text, tokenizer);  // first 90 %, last 10 %
TokenizedText tokenize(std::string_view text, const Tokenizer& tokenizer, double training_share = 0.9);

/// Reads a file. Throws c10::ValueError with the path and the reason if it cannot be read or is empty.
std::string read_text(const std::filesystem::path& path);

struct TextSampleOptions {
  std::string prompt = "\n";
  int64_t tokens = 100;  ///< number of new tokens; fewer if a stop token is generated
  SamplingOptions sampling = {.temperature = 0.8};
  uint64_t seed = 0;
};

/// Continues a prompt with a language model: returns the prompt followed by the decoded new tokens, without
/// special ones. An incomplete character becomes U+FFFD, as in Python's `decode`. When the context is full,
/// its older half is dropped. The model's mode and the default generators are left unchanged, so that
/// sampling does not affect a training run.
/// Throws c10::ValueError without a tokenizer, for a prompt that is empty or that the tokenizer cannot spell,
/// and for invalid options.
///
///   auto text = attentive::sample_text(language, {.prompt = "ROMEO:", .tokens = 60});
std::string sample_text(const LanguageModel& language, const TextSampleOptions& options = {});

/// A file of texts sampled while a model was trained: "step 100", then the text, indented by four spaces. It
/// is replaced as a whole for each text, so it is complete even if the run is killed.
///
///   attentive::TextSamples samples("run/samples.txt", /*from_step=*/0);
///   samples.add(100, attentive::sample_text(language));
class TextSamples {
 public:
  /// Keeps the texts up to `from_step`: later ones belong to steps that a resumed run repeats. The first
  /// `add` writes the file. Throws c10::ValueError if it cannot be read.
  TextSamples(std::filesystem::path path, int64_t from_step);

  /// Throws c10::ValueError if the file cannot be written.
  void add(int64_t step, const std::string& text);

 private:
  std::filesystem::path path_;
  std::string content_;
};

}  // namespace attentive
