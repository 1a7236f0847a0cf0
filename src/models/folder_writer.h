#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>

namespace attentive {

/// What a folder holds beside config.json and weights that Python needs to run the model: the bytes by name.
/// Throws std::system_error.
std::map<std::string, std::string> side_files_of(const std::filesystem::path& folder);

/// A folder that appears at `path` complete or not at all: files are written to a temporary folder beside it,
/// which `commit` puts in its place. Every member throws std::system_error.
class FolderWriter {
 public:
  explicit FolderWriter(const std::filesystem::path& path);
  ~FolderWriter();
  FolderWriter(const FolderWriter&) = delete;
  FolderWriter& operator=(const FolderWriter&) = delete;

  /// Where a new file goes.
  std::filesystem::path operator/(std::string_view name) const { return temporary_ / name; }
  /// Keeps what the old folder holds, except files that are new and those for which `is_old` is true.
  void commit(bool (*is_old)(std::string_view name));

 private:
  void keep_others(bool (*is_old)(std::string_view name));

  std::filesystem::path target_, temporary_;
};

}  // namespace attentive
