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
  /// Of all parameters. Not set: that of the weights if they have one floating dtype, otherwise `dtype` (or
  /// `torch_dtype`) of config.json, otherwise float32.
  std::optional<at::ScalarType> dtype = std::nullopt;
  /// Replaces the dropout probabilities of config.json, which must otherwise be equal.
  std::optional<double> dropout = std::nullopt;
  /// Weights that the model has no place for: {"classifier.*"}. `*` matches any run of characters.
  std::vector<std::string> ignore = {};
};

/// The options of a folder's model, from its config.json. An absent field has the default that the family's
/// class has in `transformers` 5. A field that changes the numbers is read or refused: other activations,
/// rotary scalings ("linear" and "llama3" are read), kinds of positions, and so on; docs/real_models.md lists
/// them. `bert_options` also looks at the names of the weights (at `architectures` if they were not read), for
/// whether there are a pooler, a masked-language-model head and a classifier, and `vit_options` for whether
/// there is a classifier; `PretrainedOptions::ignore` with "classifier.*" leaves that out.
///
/// Throws c10::ValueError for a folder of another family, naming the model that reads it, and for a field that
/// is missing, of a wrong type or refused: `llama_options: <path>/config.json: field "...": expected ..., got
/// ...`.
GPTOptions gpt_options(const ModelFolder& folder, const PretrainedOptions& options = {});
LlamaOptions llama_options(const ModelFolder& folder, const PretrainedOptions& options = {});
BertOptions bert_options(const ModelFolder& folder, const PretrainedOptions& options = {});
ViTOptions vit_options(const ModelFolder& folder, const PretrainedOptions& options = {});

/// The name of the class that `load_pretrained` makes of a folder: "GPT", "Llama", "Bert" or "ViT". Throws
/// c10::ValueError for a folder of a family that none reads, listing those that are known.
///
///   if (attentive::pretrained_model(folder) == "Llama") ...
std::string pretrained_model(const ModelFolder& folder);

template <class Model>
concept Pretrained = std::same_as<Model, GPT> || std::same_as<Model, Llama> || std::same_as<Model, Bert> ||
    std::same_as<Model, ViT>;

/// Builds the model that a folder describes, with the folder's weights, on the CPU and in evaluation mode.
///
/// Of `folder`, only the weights are taken. No first weights are drawn. A parameter takes the folder's tensor itself where dtype and layout fit and
/// nothing else refers to it: of safetensors files, those tensors stay in the private mapping, from which the
/// system reads them when they are first used. Training changes the memory, never the files, and the folder
/// may be replaced by `save_model_folder` meanwhile. Queries, keys and values (adjacent in memory here),
/// GPT-2's transposed matrices, and converted tensors are copied.
///
/// Throws c10::ValueError as the functions above do, for a config.json that asks for more layers or numbers than
/// the folder's weights hold (before anything is allocated), and one that lists all weights that are missing, unknown
/// or of another shape, at most ten of each kind.
/// Memory: the parameters; in all, each tensor once.
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

/// The same for a folder that is used again: every tensor is copied, so that models share nothing.
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
