#include "io/mapped_file.h"

#include <cerrno>
#include <cstring>
#include <sys/mman.h>

#include "io/refusal.h"

namespace attentive {

MappedFile::MappedFile(int descriptor, uint64_t size)
    : data_(::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, descriptor, 0)),
      size_(size) {
  if (data_ == MAP_FAILED) refuse("cannot map it: {}", std::strerror(errno));
}

MappedFile::~MappedFile() {
  ::munmap(data_, size_);
}

}  // namespace attentive
