#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <ATen/core/Tensor.h>

namespace attentive {

/// A private mapping of a whole file, readable and writable: what is written stays in memory.
class MappedFile {
 public:
  /// `descriptor` is an open file of `size` > 0 bytes; it may be closed afterwards. Throws Refusal.
  MappedFile(int descriptor, uint64_t size);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  char* data() const { return static_cast<char*>(data_); }

 private:
  void* data_;
  uint64_t size_;
};

/// A contiguous tensor over the bytes of a mapping at `offset`, which keeps the mapping alive. The bytes lie
/// inside the mapping and are aligned for `dtype`.
at::Tensor mapped_tensor(const std::shared_ptr<MappedFile>& mapping, uint64_t offset, at::IntArrayRef sizes,
                         at::ScalarType dtype);

/// Gives the memory of a tensor of `mapped_tensor` back to the system, except pages that it shares with its
/// neighbours: the next reader reads the file again. What was written to the tensor is lost. Nothing happens
/// to other tensors.
void give_back_pages(const at::Tensor& tensor);

}  // namespace attentive
