#include "files/byte_source.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/refusal.h"
#include "files/zip/crc32.h"

namespace attentive {

ByteSource::ByteSource(const std::filesystem::path& path) {
  // Without O_NONBLOCK, opening a pipe would wait for a writer.
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) refuse("cannot open it: {}", std::strerror(errno));
  struct stat info {};
  if (::fstat(descriptor_, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(descriptor_);
    refuse("not a regular file");
  }
  size_ = static_cast<uint64_t>(info.st_size);
}

ByteSource::~ByteSource() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void ByteSource::read(uint64_t offset, void* to, size_t size) const {
  if (offset > size_ || size > size_ - offset) {
    refuse("{} bytes at {} lie beyond its {} bytes", size, offset, size_);
  }
  if (descriptor_ < 0) {
    if (size > 0) std::memcpy(to, data_ + offset, size);
    return;
  }
  for (auto* bytes = static_cast<char*>(to); size > 0;) {
    // Linux reads at most 2 GiB per call.
    const auto got = ::pread(descriptor_, bytes, std::min(size, size_t{1} << 30), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) refuse("cannot read it: {}", std::strerror(errno));
    if (got == 0) refuse("it became shorter while it was read");
    bytes += got;
    offset += static_cast<uint64_t>(got);
    size -= static_cast<size_t>(got);
  }
}

uint32_t ByteSource::read_and_sum(uint64_t offset, void* to, size_t size) const {
  constexpr size_t kChunk = size_t{256} << 10;  // a fraction of the second-level cache
  uint32_t sum = 0;
  auto* bytes = static_cast<char*>(to);
  for (size_t done = 0; done < size; done += kChunk) {
    const auto now = std::min(kChunk, size - done);
    read(offset + done, bytes + done, now);
    sum = crc32(sum, bytes + done, now);
  }
  return sum;
}

}  // namespace attentive
