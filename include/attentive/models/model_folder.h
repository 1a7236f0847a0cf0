#pragma once

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <c10/core/ScalarType.h>

#include <attentive/files/file_value.h>
#include <attentive/files/state_dict.h>
#include <attentive/models/bert.h>
#include <attentive/models/gpt.h>
#include <attentive/models/llama.h>
#include <attentive/models/vit.h>

namespace attentive {

/// The names (`model_type`) of the families whose folders load, or of those that the named classes read:
/// "gpt2, llama, mistral, ...".
///
///   std::cout << attentive::known_families({attentive::BertImpl::kName});
std::string known_families(std::initializer_list<std::string_view> models = {});

/// A model folder as written by Python's `save_pretrained` or downloaded.
struct ModelFolder {
  std::filesystem::path path;
  std::string family;               ///< `model_type` of config.json: "gpt2", "llama", "bert", ...
  FileValue config;                 ///< config.json, a dict
  StateDict weights;                ///< under their names in Python
  std::filesystem::path tokenizer;  ///< tokenizer.json; empty if there is none
  /// The file of a vocabulary, such as vocab.txt or tokenizer.model; empty if there is none.
  std::filesystem::path vocabulary;
  /// The tokens that end a text: `eos_token_id` of generation_config.json or, if that file has none, of
  /// config.json.
  std::vector<int64_t> stop_tokens;
};

struct ModelFolderOptions {
  bool weights = true;  ///< false: read only what describes the model
  /// Whether tensors refer to a private mapping of the files instead of owning memory (`SafetensorsOptions`).
  bool map = true;
};

/// Reads a folder that holds config.json and, in the order in which Python looks for them, model.safetensors,
/// model.safetensors.index.json with its shards, pytorch_model.bin, or pytorch_model.bin.index.json.
///
/// Nothing in the folder is executed, and only the files that this function names are opened. What
/// DataParallel, torch.compile and FSDP put into the weights' names is removed (`without_wrappers`).
///
/// Throws c10::ValueError naming the file and the reason: a file that is missing or malformed, a config.json
/// without `model_type`, and everything that `read_state_dict` refuses.
/// Memory: with `map`, none for the weights of safetensors files until they are used.
///
///   auto folder = attentive::read_model_folder("Llama-3.2-1B");
///   auto model = attentive::load_pretrained<attentive::Llama>(std::move(folder));
ModelFolder read_model_folder(const std::filesystem::path& path, const ModelFolderOptions& options = {});

/// Reads the files of such a folder other than weights, by name, as far as they exist: config.json,
/// generation_config.json, preprocessor_config.json and the tokenizer's files. A program that saves a model
/// of this folder later keeps them for `SaveFolderOptions::files`.
/// Throws c10::ValueError with the path and the reason if one cannot be read. Memory: the files.
std::map<std::string, std::string> read_side_files(const std::filesystem::path& path);

struct PretrainedOptions {
  /// The dtype of all parameters. If not set: the dtype of the weights if they have only one floating dtype,
  /// otherwise `dtype` (or `torch_dtype`) of config.json, otherwise float32.
  std::optional<at::ScalarType> dtype = std::nullopt;
  /// Replaces the dropout probabilities of config.json, which must all be equal if this is not set.
  std::optional<double> dropout = std::nullopt;
  /// Weights to ignore because the model has no parameters for them: {"classifier.*"}. `*` matches any run of
  /// characters.
  std::vector<std::string> ignore = {};
};

/// The options of a folder's model, read from its config.json. An absent field has the default of the
/// family's class in `transformers` 5. A field that affects the results is either read or refused: other
/// activations, rotary scalings ("linear", "llama3" and "yarn" are read), kinds of positions, and so on;
/// docs/real_models.md lists them. `bert_options` also looks at the names of the weights (or at
/// `architectures` if the weights were not read) to find out whether there is a pooler, a
/// masked-language-model head or a classifier, and `vit_options` whether there is a classifier;
/// `PretrainedOptions::ignore` with "classifier.*" leaves the classifier out.
///
/// Throws c10::ValueError for a folder of another family, naming the class that reads it, and for a field
/// that is missing, has a wrong type or is refused: `llama_options: <path>/config.json: field "...": expected
/// ..., got ...`.
GPTOptions gpt_options(const ModelFolder& folder, const PretrainedOptions& options = {});
LlamaOptions llama_options(const ModelFolder& folder, const PretrainedOptions& options = {});
BertOptions bert_options(const ModelFolder& folder, const PretrainedOptions& options = {});
ViTOptions vit_options(const ModelFolder& folder, const PretrainedOptions& options = {});

/// The class that `load_pretrained` builds from a folder: "GPT", "Llama", "Bert" or "ViT". Throws
/// c10::ValueError, listing the known families, if no class reads the folder's family.
///
///   if (attentive::pretrained_model(folder) == "Llama") ...
std::string pretrained_model(const ModelFolder& folder);

template <class Model>
concept Pretrained = std::same_as<Model, GPT> || std::same_as<Model, Llama> || std::same_as<Model, Bert> ||
    std::same_as<Model, ViT>;

/// Builds the model that a folder describes, with the folder's weights, on the CPU and in evaluation mode.
///
/// Only the weights are taken from `folder`, and no initial weights are drawn. A parameter uses the folder's
/// tensor itself, without a copy, if dtype and layout fit and nothing else refers to the tensor. A tensor of
/// a safetensors file then stays in the private mapping of the file, and the system reads it when it is first
/// used. Training changes only memory, never the files, and `save_model_folder` may replace the folder
/// meanwhile. GPT-2's transposed matrices, a vision transformer's joined ones and converted tensors are
/// copied.
///
/// Throws c10::ValueError as the functions above do; if config.json asks for more layers or parameters than
/// the folder's weights hold (before anything is allocated); and, listing at most ten of each kind, for
/// weights that are missing, unknown or of another shape.
/// Memory: the parameters. Each tensor is in memory once.
///
///   auto model = attentive::load_pretrained<attentive::Llama>("Llama-3.2-1B");
template <Pretrained Model>
Model load_pretrained(ModelFolder&& folder, const PretrainedOptions& options = {});

template <>
GPT load_pretrained<GPT>(ModelFolder&& folder, const PretrainedOptions& options);
template <>
Llama load_pretrained<Llama>(ModelFolder&& folder, const PretrainedOptions& options);
template <>
Bert load_pretrained<Bert>(ModelFolder&& folder, const PretrainedOptions& options);
template <>
ViT load_pretrained<ViT>(ModelFolder&& folder, const PretrainedOptions& options);

/// Builds a model from a folder that will be used again: every tensor is copied, so that models share
/// nothing.
template <Pretrained Model>
Model load_pretrained(const ModelFolder& folder, const PretrainedOptions& options = {}) {
  auto copy = folder;
  return load_pretrained<Model>(std::move(copy), options);
}

template <Pretrained Model>
Model load_pretrained(const std::filesystem::path& path, const PretrainedOptions& options = {}) {
  return load_pretrained<Model>(read_model_folder(path), options);
}

struct SaveFolderOptions {
  /// The `model_type`. If empty: that of `config`, or else the family whose models have such options.
  std::string family = {};
  /// Fields that the model does not determine (special tokens, labels): the config.json of the folder from
  /// which the model was loaded. If not set, there are none.
  FileValue config = {};
  /// A folder whose tokenizer files, generation_config.json and preprocessor_config.json are copied; or the
  /// path of one tokenizer.json. If empty, nothing is copied.
  std::filesystem::path tokenizer = {};
  /// Further files of that kind, as bytes by name. config.json and weights in it are ignored.
  std::map<std::string, std::string> files = {};
};

/// Writes a model as a folder that Python's `AutoModel.from_pretrained` (of `transformers` 4 and 5) loads:
/// config.json, model.safetensors and the tokenizer.
///
/// The folder appears at `path` complete or not at all. An existing folder is replaced in one step, so that a
/// crash at any moment leaves the old or the new one. Its other files are kept; its old weights, shards
/// included, are removed. Folders inside it are moved afterwards; a crash between these steps leaves them
/// next to it, in the temporary folder. A model whose parameters are mapped from that folder may be saved
/// over it. Parameters that Python's class always has and this model lacks (GPT-2's biases) are written as
/// zeros.
///
/// Throws c10::ValueError, with nothing changed, naming the option, for a model that the family cannot
/// describe, such as one whose layers have a score function; for a family that the model's class does not
/// read; and if a file cannot be read or written.
/// Memory: the tensors whose layout differs in Python, and the largest tensor on another device.
///
///   auto folder = attentive::read_model_folder("gpt2");
///   auto model = attentive::load_pretrained<attentive::GPT>(std::move(folder));
///   ...
///   attentive::save_model_folder("tuned", *model, {.config = folder.config, .tokenizer = folder.path});
void save_model_folder(const std::filesystem::path& path, const GPTImpl& model,
                       const SaveFolderOptions& options = {});
void save_model_folder(const std::filesystem::path& path, const LlamaImpl& model,
                       const SaveFolderOptions& options = {});
void save_model_folder(const std::filesystem::path& path, const BertImpl& model,
                       const SaveFolderOptions& options = {});
void save_model_folder(const std::filesystem::path& path, const ViTImpl& model,
                       const SaveFolderOptions& options = {});

/// Converts a state dict of Hugging Face's `transformers` to the names of this package's model of that
/// family (`known_families`), ready for `load_state_dict`. `load_pretrained` does this for a whole folder.
/// A tied head that Python's state dict lists beside the embedding becomes "out_head.weight".
///
/// Every name may have or lack the prefix of its family ("transformer.", "model.", "bert.", ...) and what
/// wrappers put into it (`without_wrappers`), and the names of older and newer versions of `transformers` are
/// known. Matrices that Python stores transposed are transposed, fused ones are split and separate ones are
/// joined; values do not change. Buffers (causal masks, position numbers, rotary frequencies) and the heads
/// for next-sentence and sentence-order prediction are ignored. A second copy of a tied tensor must be equal.
///
/// Throws c10::ValueError for an unknown family. Throws c10::ValueError that lists, at most ten of each kind,
/// unknown names (with the nearest known name), missing parts, and tensors of a wrong rank. Memory: joined
/// tensors (q, k and v of vision transformers); otherwise views.
///
///   auto state = attentive::from_python_names("llama", attentive::read_state_dict("model.safetensors"));
StateDict from_python_names(std::string_view family, const StateDict& state);

struct PythonNamesOptions {
  bool prefix = true;    ///< whether names get the family's prefix, as in Python's models with a head
  int64_t channels = 3;  ///< channels of a vision transformer's images
};

/// Converts this package's names to those that `save_pretrained` writes; the inverse of `from_python_names`.
///
/// Throws c10::ValueError for an unknown family, for unknown names, listing them, and for tensors of a wrong
/// rank. Memory: the tensors that are transposed or joined.
///
///   auto state = attentive::to_python_names("gpt2", attentive::state_dict(*model));
StateDict to_python_names(std::string_view family, const StateDict& state,
                          const PythonNamesOptions& options = {});

}  // namespace attentive
