#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <attentive/files/file_value.h>
#include <attentive/files/state_dict.h>

namespace attentive {

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
/// Nothing in the folder is executed, and only the files that this function names are opened. A prefix that
/// DataParallel or torch.compile put before every weight is removed.
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

}  // namespace attentive
