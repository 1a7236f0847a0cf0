#pragma once

#include <filesystem>
#include <string>

namespace attentive {

/// Locks a folder against other processes during its lifetime; the system releases the lock of a killed
/// process. The lock file holds the process number, for the message in another process.
class FolderLock {
 public:
  /// Tries to lock. Throws std::system_error if the file cannot be created, or cannot be locked for another
  /// reason than a held lock.
  explicit FolderLock(const std::filesystem::path& file);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  /// False if another process holds the lock.
  bool held() const { return held_; }
  /// Describes the holder: "process 1234", or "another process" if its number is unknown.
  std::string holder() const;

 private:
  int file_;
  bool held_ = false;
};

}  // namespace attentive
