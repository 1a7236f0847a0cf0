#pragma once

#include <filesystem>
#include <string>

namespace attentive {

// Keeps other processes out of a folder while it lives; that of a killed process is gone with it. Its file
// holds the number of the process, for those who find it locked.
class FolderLock {
 public:
  // Tries to lock. Throws std::system_error if the file cannot be made or locked at all.
  explicit FolderLock(const std::filesystem::path& file);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  // False if somebody else has it.
  bool ours() const { return ours_; }
  // "process 1234", or "another process" where its number is not known.
  std::string holder() const;

 private:
  int file_;
  bool ours_ = false;
};

}  // namespace attentive
