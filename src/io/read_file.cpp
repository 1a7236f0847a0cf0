#include "io/read_file.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

namespace attentive {
namespace {

[[noreturn]] void fail(int reason, const std::string& what) {
  throw std::system_error(reason, std::generic_category(), what);
}

class RegularFile {
 public:
  // Without O_NONBLOCK, opening a pipe would wait for a writer.
  explicit RegularFile(const std::filesystem::path& path)
      : descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (descriptor_ < 0) fail(errno, "cannot open " + path.string());
    struct stat info {};
    const bool known = ::fstat(descriptor_, &info) == 0;
    if (known && S_ISREG(info.st_mode)) {
      size_ = static_cast<size_t>(info.st_size);
      return;
    }
    const int reason = known ? (S_ISDIR(info.st_mode) ? EISDIR : EINVAL) : errno;
    ::close(descriptor_);
    fail(reason, "not a regular file: " + path.string());
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
  size_t at = 0;
  while (at < most) {
    // One byte more than the file had when it was opened tells that it ends there.
    if (at == text.size()) text.resize(std::min(most, at + 4096));
    const auto got = ::read(file.descriptor(), text.data() + at, text.size() - at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(errno, "cannot read " + path.string());
    if (got == 0) break;
    at += static_cast<size_t>(got);
  }
  text.resize(at);
  return text;
}

}  // namespace attentive
