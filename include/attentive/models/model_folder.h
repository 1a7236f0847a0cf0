#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <attentive/files/file_value.h>
#include <attentive/files/state_dict.h>

namespace attentive {

/// A model as Python's `save_pretrained` writes it, or as it is downloaded: a folder.
struct ModelFolder {
  std::filesystem::path path;
  std::string family;               ///< `model_type` of config.json: "gpt2", "llama", "bert", ...
  FileValue config;                 ///< config.json, a dict
  StateDict weights;                ///< under Python's names
  std::filesystem::path tokenizer;  ///< tokenizer.json; empty if there is none
  /// The file of a vocabulary, such as vocab.txt or tokenizer.model; empty if there is none.
  std::filesystem::path vocabulary;
  /// The tokens that end a text: `eos_token_id` of generation_config.json or, if that has none, of
  /// config.json.
  std::vector<int64_t> stop_tokens;
};

struct ModelFolderOptions {
  bool weights = true;  ///< false: only what describes the model
  /// Whether tensors refer to a private mapping of the files instead of owning memory (`SafetensorsOptions`).
  bool map = true;
};

/// Reads a folder that holds config.json and, in the order in which Python looks for them, model.safetensors,
/// model.safetensors.index.json with its shards, pytorch_model.bin, or pytorch_model.bin.index.json.
///
/// Nothing in the folder is executed, and files that this function does not name are not opened. A prefix
/// that DataParallel or torch.compile put before every weight is taken off.
///
/// Throws c10::ValueError naming the file and the reason: a file that is missing or malformed, a config.json
/// without `model_type`, and what `read_state_dict` refuses.
/// Memory: with `map`, none for the weights of safetensors files before they are used.
///
///   auto folder = attentive::read_model_folder("Llama-3.2-1B");
///   auto model = attentive::load_pretrained<attentive::Llama>(std::move(folder));
ModelFolder read_model_folder(const std::filesystem::path& path, const ModelFolderOptions& options = {});

/// The bytes of the files of such a folder that belong to no weights, by name, as far as they are there:
/// config.json, generation_config.json, preprocessor_config.json and the files of a tokenizer. They are what
/// a program keeps that saves a model of that folder later (`SaveFolderOptions::files`).
/// Throws c10::ValueError with the path and the reason if one cannot be read. Memory: the files.
std::map<std::string, std::string> read_side_files(const std::filesystem::path& path);

}  // namespace attentive
