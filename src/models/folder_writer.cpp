#include "models/folder_writer.h"

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

#include "base/files.h"

namespace attentive {
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
