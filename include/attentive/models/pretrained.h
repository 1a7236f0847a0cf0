#pragma once

#include <concepts>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/ScalarType.h>

#include <attentive/models/bert.h>
#include <attentive/models/gpt.h>
#include <attentive/models/llama.h>
#include <attentive/models/model_folder.h>
#include <attentive/models/vit.h>

namespace attentive {

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
/// activations, rotary scalings ("linear" and "llama3" are read), kinds of positions, and so on;
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

}  // namespace attentive
