#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>

#include <ATen/core/Tensor.h>

namespace attentive {

/// The bytes of a file that is open for reading, or of memory. Every member throws Refusal.
class ByteSource {
 public:
  /// Opens a regular file. Each read returns the file's content at that moment; a read beyond its end is
  /// refused.
  explicit ByteSource(const std::filesystem::path& path);
  /// Uses memory, which must outlive this object.
  ByteSource(const void* data, size_t size) : data_(static_cast<const char*>(data)), size_(size) {}
  ~ByteSource();
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;

  uint64_t size() const { return size_; }
  /// The descriptor of the open file, or -1 for memory.
  int descriptor() const { return descriptor_; }

  /// Copies bytes; [offset, offset + size) must lie inside the source.
  void read(uint64_t offset, void* to, size_t size) const;

  /// Copies bytes as `read` does and returns their CRC-32, which is computed while they are in the cache.
  uint32_t read_and_sum(uint64_t offset, void* to, size_t size) const;

 private:
  const char* data_ = nullptr;
  uint64_t size_ = 0;
  int descriptor_ = -1;
};

/// Whether every byte is 0 or 1. Any other byte is not a valid bool in C++.
bool are_bools(const void* data, size_t size);

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
