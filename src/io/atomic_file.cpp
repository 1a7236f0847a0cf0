#include "io/atomic_file.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <fcntl.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

namespace attentive {
namespace {

[[noreturn]] void fail(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

// Renaming onto a symbolic link would replace the link, not the file it stands for, which need not exist yet.
std::filesystem::path resolve(std::filesystem::path path) {
  for (int links = 0; links < 40; ++links) {  // as many as Linux follows
    struct stat info {};
    if (::lstat(path.c_str(), &info) != 0 || !S_ISLNK(info.st_mode)) return path;
    std::array<char, PATH_MAX> target{};
    const auto size = ::readlink(path.c_str(), target.data(), target.size());
    if (size < 0) fail("cannot read the link");
    // An absolute target replaces the folder.
    path = folder_of(path) / std::string(target.data(), static_cast<size_t>(size));
  }
  errno = ELOOP;
  fail("cannot follow the link");
}

}  // namespace

AtomicFile::AtomicFile(const std::filesystem::path& path) : target_(resolve(path)) {
  struct stat old {};
  const bool exists = ::stat(target_.c_str(), &old) == 0;
  if (exists && !S_ISREG(old.st_mode)) {
    errno = S_ISDIR(old.st_mode) ? EISDIR : EINVAL;
    fail("not a regular file");
  }
  static std::atomic<unsigned> counter{0};
  do {
    temporary_ = folder_of(target_) /
                 (".attentive-" + std::to_string(::getpid()) + "-" + std::to_string(counter++) + ".tmp");
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (descriptor_ < 0 && errno == EEXIST);
  if (descriptor_ < 0) fail("cannot create a temporary file in its folder");
  if (exists) (void)::fchmod(descriptor_, old.st_mode & 07777);
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::write(const void* data, size_t size) {
  const auto* bytes = static_cast<const char*>(data);
  while (size > 0) {
    // Linux writes at most 2 GiB per call.
    const auto written = ::write(descriptor_, bytes, std::min(size, size_t{1} << 30));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("cannot write");
    bytes += written;
    size -= static_cast<size_t>(written);
  }
}

void AtomicFile::commit() {
  if (::fsync(descriptor_) != 0) fail("cannot sync");
  const int closed = ::close(descriptor_);
  descriptor_ = -1;
  if (closed != 0) fail("cannot close");
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) fail("cannot rename onto it");
  temporary_.clear();
  const int folder = ::open(folder_of(target_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return;  // a folder that may be written but not read cannot be synced
  const int synced = ::fsync(folder);
  const int reason = errno;
  ::close(folder);
  // Some file systems cannot sync a folder (EINVAL); any other failure means that the new name may be lost.
  if (synced != 0 && reason != EINVAL) {
    errno = reason;
    fail("written, but cannot sync its folder");
  }
}

}  // namespace attentive
