#pragma once

#include <filesystem>
#include <map>
#include <string>

#include <attentive/files/file_value.h>
#include <attentive/models/bert.h>
#include <attentive/models/gpt.h>
#include <attentive/models/llama.h>
#include <attentive/models/vit.h>

namespace attentive {

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

}  // namespace attentive
