#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>

namespace attentive {

/// Reads the files of a folder, other than config.json and weights, that Python needs to run the model: bytes
/// by name. Throws std::system_error.
std::map<std::string, std::string> side_files_of(const std::filesystem::path& folder);

/// Writes a folder that appears at `path` complete or not at all: files are written to a temporary folder
/// next to it, and `commit` exchanges the two. Every member throws std::system_error.
class FolderWriter {
 public:
  explicit FolderWriter(const std::filesystem::path& path);
  ~FolderWriter();
  FolderWriter(const FolderWriter&) = delete;
  FolderWriter& operator=(const FolderWriter&) = delete;

  /// The path at which to write a new file.
  std::filesystem::path operator/(std::string_view name) const { return temporary_ / name; }
  /// Replaces the old folder. Its files are kept unless a new file has the same name or `is_old` returns
  /// true.
  void commit(bool (*is_old)(std::string_view name));

 private:
  void keep_others(bool (*is_old)(std::string_view name));

  std::filesystem::path target_, temporary_;
};

}  // namespace attentive
