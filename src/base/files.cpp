#include "base/files.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <memory>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

namespace attentive {
namespace {

[[noreturn]] void fail(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

class Descriptor {
 public:
  Descriptor(const std::filesystem::path& path, int flags) : value_(::open(path.c_str(), flags | O_CLOEXEC)) {
    if (value_ < 0) fail("cannot open " + path.string());
  }
  ~Descriptor() { ::close(value_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return value_; }

 private:
  int value_;
};

}  // namespace

std::vector<std::string> names_in(const std::filesystem::path& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> handle(::opendir(folder.c_str()), &::closedir);
  if (!handle) fail("cannot list " + folder.string());
  std::vector<std::string> names;
  errno = 0;
  while (const auto* entry = ::readdir(handle.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  if (errno != 0) fail("cannot list " + folder.string());
  std::sort(names.begin(), names.end());
  return names;
}

void remove_tree(const std::filesystem::path& folder) {
  ::nftw(
      folder.c_str(), [](const char* path, const struct stat*, int, struct FTW*) { return ::remove(path); },
      16, FTW_DEPTH | FTW_PHYS);
}

void write_file(const std::filesystem::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text.data(), text.size());
  file.commit();
}

void sync_folder(const std::filesystem::path& folder) {
  const Descriptor handle(folder, O_RDONLY | O_DIRECTORY);
  // Some file systems cannot sync a folder and say EINVAL.
  if (::fsync(handle.get()) != 0 && errno != EINVAL) fail("cannot sync " + folder.string());
}

void make_folder(const std::filesystem::path& folder) {
  const auto parent = folder.parent_path();
  if (!parent.empty() && !is_folder(parent)) make_folder(parent);
  if (::mkdir(folder.c_str(), 0777) != 0 && !(errno == EEXIST && is_folder(folder))) {
    fail("cannot create " + folder.string());
  }
}

bool is_there(const std::filesystem::path& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0;
}

bool is_folder(const std::filesystem::path& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

namespace {

[[noreturn]] void fail_to_read(int reason, const std::string& what) {
  throw std::system_error(reason, std::generic_category(), what);
}

class RegularFile {
 public:
  // Without O_NONBLOCK, opening a pipe would wait for a writer.
  explicit RegularFile(const std::filesystem::path& path)
      : descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (descriptor_ < 0) fail_to_read(errno, "cannot open " + path.string());
    struct stat info {};
    const bool known = ::fstat(descriptor_, &info) == 0;
    if (known && S_ISREG(info.st_mode)) {
      size_ = static_cast<size_t>(info.st_size);
      return;
    }
    const int reason = known ? (S_ISDIR(info.st_mode) ? EISDIR : EINVAL) : errno;
    ::close(descriptor_);
    fail_to_read(reason, "not a regular file: " + path.string());
  }
  ~RegularFile() { ::close(descriptor_); }
  RegularFile(const RegularFile&) = delete;
  RegularFile& operator=(const RegularFile&) = delete;

  int descriptor() const { return descriptor_; }
  size_t size() const { return size_; }

 private:
  int descriptor_;
  size_t size_ = 0;
};

}  // namespace

std::string read_file(const std::filesystem::path& path, size_t most) {
  const RegularFile file(path);
  std::string text(std::min(file.size(), most), '\0');
  size_t offset = 0;
  while (offset < most) {
    // Space for one more byte than the file had when it was opened: reading it proves that the file did not
    // grow.
    if (offset == text.size()) text.resize(std::min(most, offset + 4096));
    const auto got = ::read(file.descriptor(), text.data() + offset, text.size() - offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_to_read(errno, "cannot read " + path.string());
    if (got == 0) break;
    offset += static_cast<size_t>(got);
  }
  text.resize(offset);
  return text;
}

namespace {

[[noreturn]] void fail_to_write(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

// A rename onto a symbolic link would replace the link instead of its target, which need not exist yet.
std::filesystem::path resolve(std::filesystem::path path) {
  for (int links = 0; links < 40; ++links) {  // as many links as Linux follows
    struct stat info {};
    if (::lstat(path.c_str(), &info) != 0 || !S_ISLNK(info.st_mode)) return path;
    std::array<char, PATH_MAX> target{};
    const auto size = ::readlink(path.c_str(), target.data(), target.size());
    if (size < 0) fail_to_write("cannot read the link");
    // An absolute target replaces the folder.
    path = folder_of(path) / std::string(target.data(), static_cast<size_t>(size));
  }
  errno = ELOOP;
  fail_to_write("cannot follow the link");
}

}  // namespace

AtomicFile::AtomicFile(const std::filesystem::path& path) : target_(resolve(path)) {
  struct stat old {};
  const bool exists = ::stat(target_.c_str(), &old) == 0;
  if (exists && !S_ISREG(old.st_mode)) {
    errno = S_ISDIR(old.st_mode) ? EISDIR : EINVAL;
    fail_to_write("not a regular file");
  }
  static std::atomic<unsigned> counter{0};
  do {
    temporary_ = folder_of(target_) /
                 (".attentive-" + std::to_string(::getpid()) + "-" + std::to_string(counter++) + ".tmp");
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (descriptor_ < 0 && errno == EEXIST);
  if (descriptor_ < 0) fail_to_write("cannot create a temporary file in its folder");
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
    if (written < 0) fail_to_write("cannot write");
    bytes += written;
    size -= static_cast<size_t>(written);
  }
}

void AtomicFile::overwrite(uint64_t offset, const void* data, size_t size) {
  if (::lseek(descriptor_, static_cast<off_t>(offset), SEEK_SET) < 0) fail_to_write("cannot seek");
  write(data, size);
  if (::lseek(descriptor_, 0, SEEK_END) < 0) fail_to_write("cannot seek");
}

void AtomicFile::commit() {
  if (::fsync(descriptor_) != 0) fail_to_write("cannot sync");
  const int closed = ::close(descriptor_);
  descriptor_ = -1;
  if (closed != 0) fail_to_write("cannot close");
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) fail_to_write("cannot rename onto it");
  temporary_.clear();
  const int folder = ::open(folder_of(target_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return;  // a folder that may be written but not read cannot be synced
  const int synced = ::fsync(folder);
  const int reason = errno;
  ::close(folder);
  // Some file systems cannot sync a folder (EINVAL); any other failure means that the new name may be lost.
  if (synced != 0 && reason != EINVAL) {
    errno = reason;
    fail_to_write("written, but cannot sync its folder");
  }
}

}  // namespace attentive
