#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <c10/util/Exception.h>

#include <attentive/files/state_dict.h>

namespace attentive {

class FolderLock;

/// Thrown for a checkpoint that is damaged, missing or could not be written. The message reads `<function>:
/// <path>: <reason>`.
class CheckpointError : public c10::ValueError {
 public:
  using c10::ValueError::ValueError;
};

/// Everything that a run needs to continue from a certain step.
struct Checkpoint {
  int64_t step = 0;
  StateDict model = {};
  StateDict optimizer = {};
  /// Text files stored with the tensors, such as "config.json", "state.json", "tokenizer.json".
  std::map<std::string, std::string> documents = {};
};

/// A folder of checkpoints, written by one process.
///
///   <folder>/latest                     the name of the newest checkpoint
///   <folder>/step-00002000/             one checkpoint:
///       model.safetensors, optimizer.safetensors, the documents,
///       manifest.json                   format version, step, size and SHA-256 of every file
///
/// A checkpoint is written under a temporary name; its files and folder are synced; it is renamed, and the
/// parent folder is synced. Only then is `latest` replaced: whenever the process dies, `latest` names a
/// complete checkpoint. Only process 0 of a group writes; in the others the object neither locks nor touches
/// the folder.
class CheckpointFolder {
 public:
  /// Creates the folder if necessary, locks it, and removes files that a killed process left incomplete.
  /// Throws CheckpointError if the folder cannot be written, or if another process, which the message names,
  /// writes checkpoints into it.
  explicit CheckpointFolder(std::filesystem::path folder, int64_t rank = 0);
  ~CheckpointFolder();
  CheckpointFolder(const CheckpointFolder&) = delete;
  CheckpointFolder& operator=(const CheckpointFolder&) = delete;

  /// Writes a checkpoint, makes it the latest, and removes the oldest ones beyond `keep` (0 keeps all).
  /// Returns its path, which is empty in a process that does not write. After an error, earlier checkpoints
  /// are unchanged.
  /// Throws CheckpointError with the reason if it cannot be written. Memory: at most one copied tensor.
  std::filesystem::path save(const Checkpoint& checkpoint, int64_t keep = 0);

  const std::filesystem::path& path() const { return folder_; }
  /// Whether `save` writes in this process.
  bool writes() const { return lock_ != nullptr; }

 private:
  std::filesystem::path folder_;
  std::unique_ptr<FolderLock> lock_;
};

/// The checkpoints of a folder, oldest first.
std::vector<std::filesystem::path> list_checkpoints(const std::filesystem::path& folder);

/// Reads a checkpoint: the folder of one step, or the one that `latest` names in a folder of checkpoints.
///
/// The size and SHA-256 of every file are compared with the manifest, so a truncated or changed file is
/// refused by name.
/// Throws CheckpointError.
/// Memory: the tensors and the largest file.
///
///   auto checkpoint = attentive::load_checkpoint("run");
///   attentive::load_state_dict(*model, checkpoint.model);
Checkpoint load_checkpoint(const std::filesystem::path& path);

/// Reads only the documents of a checkpoint, which suffice to build the model and the tokenizer.
std::map<std::string, std::string> load_checkpoint_documents(const std::filesystem::path& path);

}  // namespace attentive
