#include "support/write_page.h"

#include <cerrno>
#include <cstdio>
#include <memory>
#include <string>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

namespace notebooks {
namespace {

[[noreturn]] void fail(const char* what, const std::filesystem::path& path) {
  throw std::system_error(errno, std::generic_category(), std::string(what) + path.string());
}

bool is_folder(const std::filesystem::path& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

bool write_all(const std::filesystem::path& path, std::string_view text) {
  std::FILE* const file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) return false;
  const bool written =
      std::fwrite(text.data(), 1, text.size(), file) == text.size() && std::fflush(file) == 0;
  const int reason = errno;
  const bool closed = std::fclose(file) == 0;
  if (!written) errno = reason;
  return written && closed;
}

}  // namespace

void make_page_folder(const std::filesystem::path& folder) {
  const auto parent = folder.parent_path();
  if (!parent.empty() && parent != folder && !is_folder(parent)) make_page_folder(parent);
  if (::mkdir(folder.c_str(), 0777) != 0 && !(errno == EEXIST && is_folder(folder))) {
    fail("cannot create the folder ", folder);
  }
  if (::access(folder.c_str(), W_OK | X_OK) != 0) fail("cannot write into the folder ", folder);
}

void write_page(const std::filesystem::path& path, std::string_view text) {
  const std::filesystem::path temporary = path.string() + ".writing-" + std::to_string(::getpid());
  if (write_all(temporary, text) && std::rename(temporary.c_str(), path.c_str()) == 0) return;
  const int reason = errno;
  std::remove(temporary.c_str());
  errno = reason;
  fail("cannot write ", path);
}

}  // namespace notebooks
