#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <ATen/core/Tensor.h>

namespace attentive {

/// A private mapping of a whole file, readable and writable; writes stay in memory.
class MappedFile {
 public:
  /// Maps an open file of `size` > 0 bytes; `descriptor` may be closed afterwards. Throws Refusal.
  MappedFile(int descriptor, uint64_t size);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  char* data() const { return static_cast<char*>(data_); }

 private:
  void* data_;
  uint64_t size_;
};

/// Makes a contiguous tensor over the bytes of a mapping at `offset`; the tensor keeps the mapping alive. The
/// bytes must lie inside the mapping and be aligned for `dtype`.
at::Tensor mapped_tensor(const std::shared_ptr<MappedFile>& mapping, uint64_t offset, at::IntArrayRef sizes,
                         at::ScalarType dtype);

/// Releases the memory of a tensor made by `mapped_tensor`, except pages that it shares with its neighbours;
/// later accesses read the file again. Values written to the tensor are lost. Other tensors are ignored.
void give_back_pages(const at::Tensor& tensor);

}  // namespace attentive
