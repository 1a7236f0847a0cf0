#include "files/mapped_file.h"

#include <cerrno>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

#include <ATen/ops/empty.h>
#include <c10/core/Storage.h>

#include "base/refusal.h"

namespace attentive {

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
