#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>

#include <fmt/ranges.h>

#include <attentive/models/model_folder.h>

#include "base/files.h"
#include "base/refusal.h"
#include "core/kept_tensors.h"
#include "files/json_value.h"
#include "models/folder_writer.h"

namespace attentive {
namespace {

[[noreturn]] void fail_model_folder(const std::filesystem::path& path, std::string_view reason) {
  C10_THROW_ERROR(ValueError, fmt::format("read_model_folder: {}: {}", path.string(), reason));
}

FileValue read_dict(const std::filesystem::path& path) {
  try {
    auto value = read_json(path, "file");
    if (!value.is<FileValue::Dict>()) refuse("expected an object, got a {}", value.kind());
    return value;
  } catch (const Refusal& refusal) {
    fail_model_folder(path, refusal.what());
  }
}

std::filesystem::path weights_in(const std::filesystem::path& folder) {
  constexpr std::array names{"model.safetensors", "model.safetensors.index.json", "pytorch_model.bin",
                             "pytorch_model.bin.index.json"};
  for (const auto* name : names) {
    if (is_there(folder / name)) return folder / name;
  }
  fail_model_folder(folder, fmt::format("expected weights, {}; got none", fmt::join(names, ", ")));
}

std::vector<int64_t> token_list(const std::filesystem::path& path, const FileValue& value) {
  std::vector<int64_t> tokens;
  const auto add = [&](const FileValue& token) {
    const bool fits = token.is<int64_t>() && token.as<int64_t>() >= 0;
    if (!fits) fail_model_folder(path, "field \"eos_token_id\": expected a token, a list of tokens or null");
    tokens.push_back(token.as<int64_t>());
  };
  if (value.is<FileValue::List>()) {
    for (const auto& token : value.as<FileValue::List>().items) add(token);
  } else if (!value.is<FileValue::None>()) {
    add(value);
  }
  return tokens;
}

std::vector<int64_t> stop_tokens_in(const std::filesystem::path& folder, const FileValue& config) {
  const auto generation = folder / "generation_config.json";
  if (is_there(generation)) {
    const auto value = read_dict(generation);
    if (const auto* tokens = value.find("eos_token_id")) return token_list(generation, *tokens);
  }
  const auto* tokens = config.find("eos_token_id");
  return tokens ? token_list(folder / "config.json", *tokens) : std::vector<int64_t>();
}

}  // namespace

std::map<std::string, std::string> side_files_of(const std::filesystem::path& folder) {
  constexpr const char* known[] = {"added_tokens.json",
                                   "chat_template.jinja",
                                   "chat_template.json",
                                   "generation_config.json",
                                   "merges.txt",
                                   "preprocessor_config.json",
                                   "sentencepiece.bpe.model",
                                   "special_tokens_map.json",
                                   "spiece.model",
                                   "tokenizer.json",
                                   "tokenizer.model",
                                   "tokenizer_config.json",
                                   "vocab.json",
                                   "vocab.txt"};
  constexpr size_t kLargest = size_t{1} << 29;  // as the tokenizers' readers have it
  const auto names = names_in(folder);
  std::map<std::string, std::string> files;
  for (const auto* name : known) {
    if (!std::binary_search(names.begin(), names.end(), name)) continue;
    const auto path = folder / name;
    std::error_code unknown;  // read_file tells why
    if (const auto size = std::filesystem::file_size(path, unknown); !unknown && size > kLargest) {
      throw std::system_error(EFBIG, std::generic_category(), "cannot read " + path.string());
    }
    files[name] = read_file(path);
  }
  return files;
}

std::map<std::string, std::string> read_side_files(const std::filesystem::path& path) {
  try {
    auto files = side_files_of(path);
    if (is_there(path / "config.json")) files["config.json"] = read_file(path / "config.json");
    return files;
  } catch (const std::system_error& error) {
    TORCH_CHECK_VALUE(false, "read_side_files: ", error.what());
  }
}

ModelFolder read_model_folder(const std::filesystem::path& path, const ModelFolderOptions& options) {
  const KeptTensors kept;  // a model may take the tensors
  if (!is_folder(path)) fail_model_folder(path, "expected a folder, got none");
  const auto config = path / "config.json";
  if (!is_there(config)) fail_model_folder(path, "expected config.json, got none");
  ModelFolder folder;
  folder.path = path;
  folder.config = read_dict(config);
  const auto* type = folder.config.find("model_type");
  if (type == nullptr || !type->is<std::string>()) {
    fail_model_folder(config, fmt::format("field \"model_type\": expected a string, got {}",
                                          type == nullptr ? "none" : type->kind()));
  }
  folder.family = type->as<std::string>();
  if (is_there(path / "tokenizer.json")) folder.tokenizer = path / "tokenizer.json";
  for (const auto* name :
       {"vocab.txt", "vocab.json", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model"}) {
    if (folder.vocabulary.empty() && is_there(path / name)) folder.vocabulary = path / name;
  }
  folder.stop_tokens = stop_tokens_in(path, folder.config);
  if (options.weights) {
    ReadStateOptions reading;
    reading.file.map = options.map;
    auto file = read_state_dict_file(weights_in(path), reading);
    folder.weights = file.prefix.empty() ? std::move(file.state) : without_prefix(file.state, file.prefix);
  }
  return folder;
}

}  // namespace attentive
