#include "files/mapped_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ATen/ops/empty.h>
#include <c10/core/Storage.h>

#include "base/refusal.h"
#include "files/torch/zip.h"

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

bool are_bools(const void* data, size_t size) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  unsigned char all = 0;
  for (size_t i = 0; i < size; ++i) all |= bytes[i];
  return all <= 1;
}

MappedFile::MappedFile(int descriptor, uint64_t size)
    : data_(::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, descriptor, 0)),
      size_(size) {
  if (data_ == MAP_FAILED) refuse("cannot map it: {}", std::strerror(errno));
}

MappedFile::~MappedFile() {
  ::munmap(data_, size_);
}

namespace {

void keep_mapping(void* context) {
  delete static_cast<std::shared_ptr<MappedFile>*>(context);
}

}  // namespace

at::Tensor mapped_tensor(const std::shared_ptr<MappedFile>& mapping, uint64_t offset, at::IntArrayRef sizes,
                         at::ScalarType dtype) {
  auto tensor = at::empty({0}, at::TensorOptions().dtype(dtype).device(at::kCPU));
  const auto bytes = c10::multiply_integers(sizes) * static_cast<int64_t>(c10::elementSize(dtype));
  c10::DataPtr data(mapping->data() + offset, new std::shared_ptr<MappedFile>(mapping), &keep_mapping,
                    c10::Device(c10::kCPU));
  const c10::Storage storage(c10::Storage::use_byte_size_t(), static_cast<size_t>(bytes), std::move(data),
                             nullptr, /*resizable=*/false);
  std::vector<int64_t> strides(sizes.size(), 1);
  for (size_t i = sizes.size(); i-- > 1;) strides[i - 1] = strides[i] * sizes[i];
  tensor.set_(storage, 0, sizes, strides);
  return tensor;
}

void give_back_pages(const at::Tensor& tensor) {
  if (!tensor.has_storage() || tensor.storage().data_ptr().get_deleter() != &keep_mapping) return;
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto start = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
  const auto begin = (start + page - 1) / page * page, end = (start + tensor.nbytes()) / page * page;
  if (begin < end) (void)::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace attentive
