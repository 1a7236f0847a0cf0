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
  /// The `model_type`. Empty: that of `config`, or else the family whose models have such options.
  std::string family = {};
  /// The fields that the model does not determine (token numbers, labels): config.json of the folder that the
  /// model came from. Not set: none.
  FileValue config = {};
  /// A folder whose files of a tokenizer, with generation_config.json and preprocessor_config.json, are
  /// copied, or one tokenizer.json. Empty: none.
  std::filesystem::path tokenizer = {};
  /// More files of that kind, by name: their bytes. config.json and weights are never among them.
  std::map<std::string, std::string> files = {};
};

/// Writes a model as a folder that Python's `AutoModel.from_pretrained` (of `transformers` 4 and 5) loads:
/// config.json, model.safetensors and the tokenizer.
///
/// The folder appears at `path` complete or not at all. A folder that is there already is replaced in one
/// step, also by a crash at any moment: its other files are kept, and old weights, sharded ones included, are
/// gone. Folders inside it are moved next; a crash between these steps leaves them beside it, in the temporary
/// folder. A model whose parameters are mapped from that folder may be saved over it. Parameters
/// that Python's class always has and this model lacks (GPT-2's biases) are written as zeros.
///
/// Throws c10::ValueError, with nothing changed, for a model that the family cannot describe, naming the
/// option; for a family that the model does not read; and if a file cannot be read or written.
/// Memory: the tensors whose layout differs in Python, and the largest tensor of another device.
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
