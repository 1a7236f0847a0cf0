#pragma once

// File operations on folders. They do not use std::filesystem's directory iterators: libtorch_cpu.so exports
// the iterators of an older libstdc++, and a program that picks those up crashes.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace attentive {

/// The names in a folder, sorted, without "." and "..". Throws std::system_error.
std::vector<std::string> names_in(const std::filesystem::path& folder);
/// Removes a folder and everything in it. Errors are ignored, because callers only clean up.
void remove_tree(const std::filesystem::path& folder);
/// Throws std::system_error.
void write_file(const std::filesystem::path& path, std::string_view text);
void sync_folder(const std::filesystem::path& folder);
void make_folder(const std::filesystem::path& folder);
bool is_folder(const std::filesystem::path& path);
/// Whether a file or folder exists at `path`; links are followed.
bool is_there(const std::filesystem::path& path);

/// The bytes of a regular file, at most `most` of them. A folder, pipe, socket or device is refused: opening
/// or reading one may wait for ever. Throws std::system_error with the path.
std::string read_file(const std::filesystem::path& path, size_t most = std::numeric_limits<size_t>::max());

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
  /// Replaces bytes that were written before, such as a header that is known only at the end.
  void overwrite(uint64_t offset, const void* data, size_t size);
  void commit();

 private:
  std::filesystem::path target_;
  std::filesystem::path temporary_;
  int descriptor_ = -1;
};

}  // namespace attentive
