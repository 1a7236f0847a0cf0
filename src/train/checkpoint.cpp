#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <fcntl.h>
#include <functional>
#include <optional>
#include <sys/file.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <attentive/files/safetensors.h>
#include <attentive/train/checkpoint.h>

#include "base/files.h"
#include "files/safetensors.h"
#include "train/folder_lock.h"
#include "train/sha256.h"

namespace attentive {
namespace {

bool lives(pid_t process) {
  return process > 0 && (::kill(process, 0) == 0 || errno == EPERM);
}

}  // namespace

FolderLock::FolderLock(const std::filesystem::path& file)
    : file_(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
  if (file_ < 0) throw std::system_error(errno, std::generic_category(), "cannot create .lock");
  held_ = ::flock(file_, LOCK_EX | LOCK_NB) == 0;
  if (!held_ && errno != EWOULDBLOCK) {
    const int reason = errno;
    ::close(file_);
    throw std::system_error(reason, std::generic_category(), "cannot lock it");
  }
  if (!held_) return;
  // Writing the number may fail, for instance on a full disk; the lock is valid without it, and only a
  // message lacks it.
  const auto number = std::to_string(::getpid()) + '\n';
  (void)!::ftruncate(file_, 0);
  (void)!::pwrite(file_, number.data(), number.size(), 0);
}

FolderLock::~FolderLock() {
  if (held_) (void)!::ftruncate(file_, 0);
  ::close(file_);
}

std::string FolderLock::holder() const {
  std::array<char, 32> text{};
  const auto count = ::pread(file_, text.data(), text.size(), 0);
  pid_t process = 0;
  if (count > 0) std::from_chars(text.data(), text.data() + count, process);
  return lives(process) ? "process " + std::to_string(process) : "another process";
}

namespace {

constexpr const char* kSave = "CheckpointFolder";
constexpr const char* kLoad = "load_checkpoint";
constexpr const char* kModelFile = "model.safetensors";
constexpr const char* kOptimizer = "optimizer.safetensors";
constexpr const char* kManifest = "manifest.json";
constexpr const char* kLatest = "latest";
constexpr int64_t kFormat = 1;

[[noreturn]] void fail_checkpoint(const char* caller, const std::filesystem::path& path,
                                  const std::string& reason) {
  throw CheckpointError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)},
                        fmt::format("{}: {}: {}", caller, path.string(), reason));
}

// The name of a checkpoint: "step-00002000", or "step-00002000-2" for the second one of that step.
struct Name {
  int64_t step;
  int64_t copy;
  auto operator<=>(const Name&) const = default;
};

std::string to_string(const Name& name) {
  return name.copy == 1 ? fmt::format("step-{:08}", name.step)
                        : fmt::format("step-{:08}-{}", name.step, name.copy);
}

std::optional<Name> parse_name(const std::string& text) {
  Name name{0, 1};
  if (!text.starts_with("step-")) return std::nullopt;
  const char* end = text.data() + text.size();
  auto result = std::from_chars(text.data() + 5, end, name.step);
  if (result.ec == std::errc() && result.ptr != end && *result.ptr == '-') {
    result = std::from_chars(result.ptr + 1, end, name.copy);
  }
  // Accepts only names in the form that save() writes: no sign, no missing digits.
  if (result.ec != std::errc() || result.ptr != end || to_string(name) != text) return std::nullopt;
  return name;
}

std::vector<Name> checkpoint_names(const std::filesystem::path& folder) {
  std::vector<Name> names;
  for (const auto& text : names_in(folder)) {
    if (const auto name = parse_name(text)) names.push_back(*name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool is_leftover(const std::string& name) {
  return name.starts_with(".saving-") || name.starts_with(".removing-") || name.starts_with(".attentive-");
}

std::string dump(const nlohmann::json& manifest) {
  return manifest.dump(1) + '\n';
}

using Sink = std::function<void(const void*, size_t)>;

// Writes a file and returns its entry in the manifest, for which the bytes are hashed on their way.
nlohmann::json write_hashed(const std::filesystem::path& path,
                            const std::function<void(const Sink&)>& write) {
  AtomicFile file(path);
  Sha256 sum;
  uint64_t size = 0;
  write([&](const void* data, size_t count) {
    file.write(data, count);
    sum.add({static_cast<const char*>(data), count});
    size += count;
  });
  file.commit();
  return {{"size", size}, {"sha256", sum.digest()}};
}

void write_checkpoint(const std::filesystem::path& folder, const Checkpoint& checkpoint) {
  nlohmann::json files;
  for (const auto& [name, tensors] :
       {std::pair{kModelFile, &checkpoint.model}, {kOptimizer, &checkpoint.optimizer}}) {
    const auto path = folder / name;
    files[name] = write_hashed(path, [&, &held = *tensors](const Sink& sink) {
      write_safetensors("save_safetensors: " + path.string(), held, {}, sink);
    });
  }
  for (const auto& [name, text] : checkpoint.documents) {
    files[name] =
        write_hashed(folder / name, [&all = text](const Sink& sink) { sink(all.data(), all.size()); });
  }
  const nlohmann::json manifest{{"format", kFormat}, {"step", checkpoint.step}, {"files", files}};
  write_file(folder / kManifest, dump(manifest));
  sync_folder(folder);
}

bool is_plain_name(const std::string& name) {
  return !name.empty() && name.front() != '.' && name.find('/') == std::string::npos && name != kManifest;
}

// The checkpoint at `path`: the folder itself, or the one that its `latest` names.
std::filesystem::path resolve(const std::filesystem::path& path) {
  if (!is_folder(path)) fail_checkpoint(kLoad, path, "no such folder");
  const auto names = names_in(path);
  const auto has = [&](const char* name) { return std::binary_search(names.begin(), names.end(), name); };
  if (has(kManifest)) return path;
  if (!has(kLatest)) {
    // `latest` is missing if a process was killed between the rename of its first checkpoint and the writing
    // of "latest".
    const auto checkpoints = checkpoint_names(path);
    if (!checkpoints.empty()) return path / to_string(checkpoints.back());
    fail_checkpoint(kLoad, path, "neither a checkpoint (manifest.json) nor a folder of checkpoints (latest)");
  }
  auto name = read_file(path / kLatest);
  while (!name.empty() && name.back() == '\n') name.pop_back();
  if (!parse_name(name)) fail_checkpoint(kLoad, path / kLatest, "expected the name of a checkpoint");
  if (!is_folder(path / name))
    fail_checkpoint(kLoad, path / name, "no such folder, though \"latest\" names it");
  return path / name;
}

bool lists_files(const nlohmann::json& files) {
  if (!files.is_object() || !files.contains(kModelFile) || !files.contains(kOptimizer)) return false;
  for (const auto& [name, file] : files.items()) {
    if (!is_plain_name(name) || !file.is_object() || file.size() != 2 || !file.contains("size") ||
        !file["size"].is_number_unsigned() || !file.contains("sha256") || !file["sha256"].is_string()) {
      return false;
    }
  }
  return true;
}

// Reads the manifest. Any changed byte in it is detected.
nlohmann::json read_manifest(const std::filesystem::path& folder) {
  const auto path = folder / kManifest;
  const auto text = read_file(path);
  const auto manifest = nlohmann::json::parse(text, nullptr, false);
  const bool complete = manifest.is_object() && manifest.size() == 3 && manifest.contains("format") &&
                        manifest["format"].is_number_integer() && manifest.contains("step") &&
                        manifest["step"].is_number_unsigned() && manifest.contains("files") &&
                        lists_files(manifest["files"]);
  if (!complete || dump(manifest) != text)
    fail_checkpoint(kLoad, path, "damaged: not a manifest that was written here");
  if (manifest["format"] != kFormat) {
    fail_checkpoint(kLoad, path,
                    fmt::format("expected format {}, got {}", kFormat, manifest["format"].dump()));
  }
  // The user may have renamed the folder; only a name that states another step is refused.
  const auto name = parse_name(folder.filename().string());
  if (name && manifest["step"] != name->step)
    fail_checkpoint(kLoad, path, "damaged: its step is not that of the folder");
  return manifest;
}

std::string read_verified(const std::filesystem::path& path, const nlohmann::json& expected) {
  const auto bytes = read_file(path);
  if (expected["size"] != bytes.size()) {
    fail_checkpoint(kLoad, path,
                    fmt::format("expected {} bytes, got {}", expected["size"].dump(), bytes.size()));
  }
  if (expected["sha256"] != sha256(bytes)) {
    fail_checkpoint(kLoad, path, "damaged: its SHA-256 differs from the manifest");
  }
  return bytes;
}

template <class Read>
auto reporting(const char* caller, const std::filesystem::path& path, Read read) {
  try {
    return read();
  } catch (const std::system_error& error) {
    fail_checkpoint(caller, path, error.what());
  } catch (const SafetensorsError& error) {
    fail_checkpoint(caller, path, error.what_without_backtrace());
  } catch (const nlohmann::json::exception& error) {
    fail_checkpoint(caller, path, error.what());
  }
}

}  // namespace

CheckpointFolder::CheckpointFolder(std::filesystem::path folder, int64_t rank) : folder_(std::move(folder)) {
  if (rank != 0) return;
  reporting(kSave, folder_, [&] {
    make_folder(folder_);
    lock_ = std::make_unique<FolderLock>(folder_ / ".lock");
    if (!lock_->held()) {
      fail_checkpoint(kSave, folder_,
                      lock_->holder() + " writes its checkpoints here, and may still be saving one");
    }
    for (const auto& name : names_in(folder_)) {
      if (is_leftover(name)) remove_tree(folder_ / name);
    }
  });
}

CheckpointFolder::~CheckpointFolder() = default;

std::filesystem::path CheckpointFolder::save(const Checkpoint& checkpoint, int64_t keep) {
  TORCH_CHECK_VALUE(checkpoint.step >= 0 && keep >= 0, kSave, ": expected step >= 0 and keep >= 0, got ",
                    checkpoint.step, " and ", keep);
  for (const auto& [document, text] : checkpoint.documents) {
    if (!is_plain_name(document) || document == kModelFile || document == kOptimizer) {
      fail_checkpoint(kSave, folder_, "expected a plain file name for a document, got \"" + document + '"');
    }
  }
  if (!lock_) return {};  // another process of the group writes
  const auto temporary = folder_ / fmt::format(".saving-{}", checkpoint.step);
  return reporting(kSave, folder_, [&] {
    remove_tree(temporary);
    auto name = Name{checkpoint.step, 1};
    try {
      make_folder(temporary);
      write_checkpoint(temporary, checkpoint);
      while (is_folder(folder_ / to_string(name))) ++name.copy;
      if (::rename(temporary.c_str(), (folder_ / to_string(name)).c_str()) != 0) {
        throw std::system_error(errno, std::generic_category(), "cannot rename " + temporary.string());
      }
    } catch (...) {
      remove_tree(temporary);
      throw;
    }
    sync_folder(folder_);
    write_file(folder_ / kLatest, to_string(name) + '\n');

    auto names = checkpoint_names(folder_);
    std::erase(names, name);
    // Renames it first, so that a partly removed checkpoint is never visible.
    for (size_t i = 0; keep > 0 && i + static_cast<size_t>(keep) <= names.size(); ++i) {
      const auto removing = folder_ / (".removing-" + to_string(names[i]));
      if (::rename((folder_ / to_string(names[i])).c_str(), removing.c_str()) == 0) remove_tree(removing);
    }
    return folder_ / to_string(name);
  });
}

std::vector<std::filesystem::path> list_checkpoints(const std::filesystem::path& folder) {
  return reporting("list_checkpoints", folder, [&] {
    std::vector<std::filesystem::path> paths;
    for (const auto& name : checkpoint_names(folder)) paths.push_back(folder / to_string(name));
    return paths;
  });
}

std::map<std::string, std::string> load_checkpoint_documents(const std::filesystem::path& path) {
  return reporting(kLoad, path, [&] {
    const auto folder = resolve(path);
    const auto manifest = read_manifest(folder);
    std::map<std::string, std::string> documents;
    for (const auto& [name, expected] : manifest["files"].items()) {
      if (name != kModelFile && name != kOptimizer) documents[name] = read_verified(folder / name, expected);
    }
    return documents;
  });
}

Checkpoint load_checkpoint(const std::filesystem::path& path) {
  return reporting(kLoad, path, [&] {
    const auto folder = resolve(path);
    const auto manifest = read_manifest(folder);
    Checkpoint checkpoint;
    checkpoint.step = manifest["step"].get<int64_t>();
    for (const auto& [name, expected] : manifest["files"].items()) {
      auto bytes = read_verified(folder / name, expected);
      if (name == kModelFile) {
        checkpoint.model = parse_safetensors(bytes.data(), bytes.size()).tensors;
      } else if (name == kOptimizer) {
        checkpoint.optimizer = parse_safetensors(bytes.data(), bytes.size()).tensors;
      } else {
        checkpoint.documents[name] = std::move(bytes);
      }
    }
    return checkpoint;
  });
}

}  // namespace attentive
