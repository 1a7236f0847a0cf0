#include "train/folder_lock.h"

#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <fcntl.h>
#include <sys/file.h>
#include <system_error>
#include <unistd.h>

namespace attentive {
namespace {

bool lives(pid_t process) {
  return process > 0 && (::kill(process, 0) == 0 || errno == EPERM);
}

}  // namespace

FolderLock::FolderLock(const std::filesystem::path& file)
    : file_(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
  if (file_ < 0) throw std::system_error(errno, std::generic_category(), "cannot create .lock");
  held_ = ::flock(file_, LOCK_EX | LOCK_NB) == 0;
  if (!held_ && errno != EWOULDBLOCK) {
    const int reason = errno;
    ::close(file_);
    throw std::system_error(reason, std::generic_category(), "cannot lock it");
  }
  if (!held_) return;
  // Writing the number may fail, for instance on a full disk; the lock is valid without it, and only a
  // message lacks it.
  const auto number = std::to_string(::getpid()) + '\n';
  (void)!::ftruncate(file_, 0);
  (void)!::pwrite(file_, number.data(), number.size(), 0);
}

FolderLock::~FolderLock() {
  if (held_) (void)!::ftruncate(file_, 0);
  ::close(file_);
}

std::string FolderLock::holder() const {
  std::array<char, 32> text{};
  const auto count = ::pread(file_, text.data(), text.size(), 0);
  pid_t process = 0;
  if (count > 0) std::from_chars(text.data(), text.data() + count, process);
  return lives(process) ? "process " + std::to_string(process) : "another process";
}

}  // namespace attentive
