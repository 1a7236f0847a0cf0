#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <memory>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <fmt/ranges.h>

#include <attentive/models/model_folder.h>

#include "base/files.h"
#include "base/refusal.h"
#include "core/normal_tensors.h"
#include "files/json_value.h"
#include "files/state_fit.h"
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
  const NormalTensorsGuard kept;  // a model may take the tensors
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
    const auto weights = weights_in(path);
    for (const auto& [name, tensor] : read_state_dict_file(weights, reading).state) {
      if (!folder.weights.emplace(without_wrappers(name), tensor).second)
        fail_model_folder(weights, fmt::format("{} is there twice, under several names", quoted_name(name)));
    }
  }
  return folder;
}

namespace {

[[noreturn]] void fail_to_write_folder(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

// Makes the path absolute and resolves links, so that a rename does not replace a link. The last component
// need not exist.
std::filesystem::path resolve(const std::filesystem::path& path) {
  const std::unique_ptr<char, decltype(&std::free)> real(::realpath(path.c_str(), nullptr), &std::free);
  if (real) return real.get();
  const auto plain = path.has_filename() ? path : path.parent_path();
  return plain.has_parent_path() ? plain : std::filesystem::path(".") / plain;
}

// Also true for a dangling link.
bool has_entry(const std::filesystem::path& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0;
}

// Folders, unlike files and links to folders, cannot be hard-linked.
bool is_real_folder(const std::filesystem::path& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

}  // namespace

FolderWriter::FolderWriter(const std::filesystem::path& path) : target_(resolve(path)) {
  if (has_entry(target_) && !is_folder(target_)) {
    errno = ENOTDIR;
    fail_to_write_folder("cannot replace it");
  }
  const auto parent = target_.parent_path();
  if (!is_folder(parent)) make_folder(parent);
  static std::atomic<unsigned> counter{0};
  do {
    temporary_ =
        parent / (".attentive-" + std::to_string(::getpid()) + "-" + std::to_string(counter++) + ".tmp");
  } while (::mkdir(temporary_.c_str(), 0777) != 0 && errno == EEXIST);
  if (!is_folder(temporary_)) fail_to_write_folder("cannot create a temporary folder beside it");
}

FolderWriter::~FolderWriter() {
  if (!temporary_.empty()) remove_tree(temporary_);
}

void FolderWriter::keep_others(bool (*is_old)(std::string_view name)) {
  for (const auto& name : names_in(target_)) {
    const auto old = target_ / name, kept = temporary_ / name;
    // Folders are moved after the exchange.
    if (is_old(name) || has_entry(kept) || is_real_folder(old)) continue;
    if (::link(old.c_str(), kept.c_str()) != 0) fail_to_write_folder("cannot keep " + old.string());
  }
}

void FolderWriter::commit(bool (*is_old)(std::string_view name)) {
  if (!has_entry(target_)) {
    sync_folder(temporary_);
    if (::rename(temporary_.c_str(), target_.c_str()) != 0) fail_to_write_folder("cannot rename onto it");
    temporary_.clear();
    return sync_folder(target_.parent_path());
  }
  struct stat info {};
  if (::stat(target_.c_str(), &info) == 0) (void)::chmod(temporary_.c_str(), info.st_mode & 07777);
  keep_others(is_old);
  sync_folder(temporary_);
  if (::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, target_.c_str(), RENAME_EXCHANGE) != 0) {
    fail_to_write_folder("cannot exchange it with a new one");
  }
  for (const auto& name : names_in(temporary_)) {
    if (!is_real_folder(temporary_ / name)) continue;
    if (::rename((temporary_ / name).c_str(), (target_ / name).c_str()) != 0) {
      const auto left = std::exchange(temporary_, {});  // kept: it holds the folders that could not be moved
      fail_to_write_folder("written, but cannot move " + (left / name).string() + " into it");
    }
  }
  sync_folder(target_.parent_path());
}

}  // namespace attentive
