#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

namespace attentive {

/// A file that appears at `path` complete or not at all. Bytes go to a temporary file in the same folder;
/// `commit` syncs it, renames it over `path` and syncs the folder. Without `commit` the temporary file is
/// removed again. A symbolic link is followed, also to a file that does not exist yet; a loop of links is an
/// error, and so is a path that is no regular file. Every member throws std::system_error.
class AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, size_t size);
  void commit();

 private:
  std::filesystem::path target_;
  std::filesystem::path temporary_;
  int descriptor_ = -1;
};

}  // namespace attentive
